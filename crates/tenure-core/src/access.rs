//! Owns who may do what with an intent. Open to everyone unless its list says closed; whoever made it and administrators
//! may always do everything, and an agent that is assigned to it may read and write.

use serde::{Deserialize, Serialize};

use crate::intent::Intent;
use crate::serial::AccessId;
use crate::{Holder, Timestamp};

/// Who asks for something, and whether they may do what only administrators may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name.
    pub holder: Holder,
    /// Whether administrator.
    pub is_admin: bool,
}

/// What may be done; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// Look at it.
    Read,
    /// Change it, lease its scopes.
    Write,
    /// Decide who may.
    Admin,
}

impl Permission {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Permission::Read => "read",
            Permission::Write => "write",
            Permission::Admin => "admin",
        }
    }
}

/// What those may do whom the list does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Read and write.
    #[default]
    Open,
    /// Nothing.
    Closed,
}

/// One name on the list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its id.
    pub id: AccessId,
    /// Who.
    pub principal: Holder,
    /// What kind of principal, in the granter's words.
    pub principal_type: Box<str>,
    /// May do what.
    pub permission: Permission,
    /// Who granted it.
    pub granted_by: Holder,
    /// When.
    pub granted_at: Timestamp,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Box<str>>,
}

/// Where a request for access stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestStatus {
    /// Nobody has decided yet.
    Pending,
    /// Granted.
    Approved,
    /// Not granted.
    Denied,
}

/// Someone asks to be put on the list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AccessRequest {
    /// Its id.
    pub id: AccessId,
    /// Who.
    pub principal: Holder,
    /// What kind of principal.
    pub principal_type: Box<str>,
    /// For what.
    pub permission: Permission,
    /// Why.
    pub reason: Box<str>,
    /// What the principal can do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<Box<str>>,
    /// Where it stands.
    pub status: RequestStatus,
    /// When it was asked.
    pub created_at: Timestamp,
    /// Who decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<Holder>,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Timestamp>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision_reason: Option<Box<str>>,
}

/// The list of an intent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Access {
    /// For everyone else.
    pub policy: Policy,
    /// Who may do what.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<Entry>,
    /// Who asked to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<AccessRequest>,
}

impl Access {
    pub(crate) fn is_default(&self) -> bool {
        *self == Access::default()
    }

    fn granted(&self, holder: &Holder, now: Timestamp) -> Option<Permission> {
        let live = self.entries.iter().filter(|entry| entry.expires_at.is_none_or(|until| now < until));
        live.filter(|entry| entry.principal == *holder).map(|entry| entry.permission).max()
    }
}

impl Intent {
    /// Whether `caller` may do that with it.
    pub fn allows(&self, caller: &Caller, wanted: Permission, now: Timestamp) -> bool {
        let implied = match self.access.policy {
            Policy::Open => Some(Permission::Write),
            Policy::Closed => self.assignment(&caller.holder).map(|_| Permission::Write),
        };
        caller.is_admin
            || caller.holder == self.created_by
            || self.access.granted(&caller.holder, now).max(implied) >= Some(wanted)
    }
}
