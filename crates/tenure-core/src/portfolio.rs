//! Owns what a portfolio is: intents that belong together.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::serial::{IntentId, PortfolioId};
use crate::{Holder, Timestamp};

/// Where a portfolio stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortfolioStatus {
    /// Being worked on.
    #[default]
    Active,
    /// Done.
    Completed,
    /// Given up.
    Abandoned,
}

/// What an intent is to its portfolio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// What it is all about.
    Primary,
    /// One of several.
    #[default]
    Member,
    /// Something the others need.
    Dependency,
}

/// An intent in a portfolio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Which.
    pub intent: IntentId,
    /// As what.
    pub role: Role,
    /// Larger comes first, by the reader's own rules.
    pub priority: i64,
    /// Since when.
    pub added_at: Timestamp,
}

/// Intents that belong together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Portfolio {
    /// Its id.
    pub id: PortfolioId,
    /// Its name.
    pub name: Box<str>,
    /// In more words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Who made it.
    pub created_by: Holder,
    /// Where it stands.
    pub status: PortfolioStatus,
    /// A policy that is kept, not interpreted.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub governance: Map<String, Value>,
    /// The maker's own notes.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// Its intents, in the order in which they came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
}
