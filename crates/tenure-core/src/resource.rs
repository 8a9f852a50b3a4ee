//! Owns what can be held: names, their one normal form, and which of them overlap (R1, R2).
//!
//! Every resource is a place in one tree, and holding a place holds everything below it:
//!
//! ```text
//! intent ── X ── research            intent:X/research     intent:X/* is the node X
//! repo ─┬─ path ── src ── a.rs       path:src/a.rs         path:** is the node path
//!       ├─ issue ── 8057324b         issue:8057324b
//!       └─ repo ── deploy            repo:deploy           repo:* is the top node of this group
//! task ── 17                         task:17               any other kind is a single place of its own
//! ```
//!
//! So two resources overlap exactly when one's place is on the way to the other's. A [`Resource`] stores that
//! way as one string in which every segment ends with NUL; NUL cannot be in a name, so «is on the way to» is
//! «is a prefix of», and a subtree is one range of an ordered map.
//!
//! Does not promise that a resource exists anywhere: names are what callers agree on.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::{KIND_BYTES_MAX, RESOURCE_BYTES_MAX};
use crate::serial::IntentId;
use crate::text::normal_form;

/// Ends every segment of a place; control characters are refused in names, so it is never inside one.
const END: char = '\0';

/// The top node of everything that belongs to a repository: `path:`, `issue:` and `repo:` names.
const REPOSITORY: &str = "repo\0";

/// The way to every intent.
const INTENT: &str = "intent\0";

/// Something that can be held, in its normal form.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(Arc<str>);

/// Why a text is not a resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResourceError {
    /// There is no `kind:` in front.
    #[error("a resource is written kind:name, for example path:src/main.rs")]
    NoKind,
    /// The kind has other characters than lower-case letters, digits, `-`, `_` and `.`.
    #[error("a resource's kind has 1 to {KIND_BYTES_MAX} characters of a-z, 0-9, '-', '_' and '.'")]
    BadKind,
    /// Nothing stands behind the colon.
    #[error("the name behind the colon is empty")]
    EmptyName,
    /// Too long.
    #[error("a resource has at most {RESOURCE_BYTES_MAX} bytes, this one has {bytes}")]
    TooLong {
        /// The length that was given.
        bytes: usize,
    },
    /// A control character, or a blank at either end.
    #[error("a name has no control characters and no blanks at its ends")]
    BadCharacter,
    /// A path with an empty, `.` or `..` segment, or a slash at either end.
    #[error("a path has no empty, '.' or '..' segment and no slash at its ends")]
    BadPath,
    /// An intent without a scope.
    #[error("an intent is held by scope: intent:<id>/<scope>, or intent:<id>/* for all of it")]
    NoScope,
}

impl Resource {
    /// Reads and normalises a resource (R1).
    pub fn parse(text: &str) -> Result<Resource, ResourceError> {
        if text.len() > RESOURCE_BYTES_MAX {
            return Err(ResourceError::TooLong { bytes: text.len() });
        }
        let text = normal_form(text);
        if text.len() > RESOURCE_BYTES_MAX {
            return Err(ResourceError::TooLong { bytes: text.len() });
        }
        let (kind, name) = text.split_once(':').ok_or(ResourceError::NoKind)?;
        check_kind(kind)?;
        check_name(name)?;
        let place = match kind {
            "intent" => intent_place(name)?,
            "path" => path_place(name)?,
            "repo" if name == "*" || name == "global" => REPOSITORY.to_owned(),
            "repo" | "issue" => place_of(&["repo", kind, name]),
            _ => place_of(&[kind, name]),
        };
        Ok(Resource(place.into()))
    }

    /// The resource that a worker holds while it does a task.
    pub(crate) fn of_task(id: crate::id::TaskId) -> Resource {
        Resource(format!("task{END}{id}{END}").into())
    }

    /// The resource that stands for a run of a workflow in events.
    pub(crate) fn of_flow(id: crate::id::FlowId) -> Resource {
        Resource(format!("workflow{END}{id}{END}").into())
    }

    /// The part before the colon.
    pub fn kind(&self) -> &str {
        let mut segments = self.segments();
        match (segments.next(), segments.next()) {
            (Some("repo"), Some(kind)) => kind,
            (first, _) => first.unwrap_or_default(),
        }
    }

    /// The intent it is or is a scope of, if the name is an id that this ledger could have given.
    pub fn intent(&self) -> Option<IntentId> {
        let mut segments = self.segments();
        (segments.next() == Some("intent")).then(|| segments.next()?.parse().ok()).flatten()
    }

    /// The intent whose access list it falls under: that of a scope, or of the right to coordinate it.
    pub fn listed_under(&self) -> Option<IntentId> {
        let mut segments = self.segments();
        matches!(segments.next(), Some("intent" | "coordinator")).then(|| segments.next()?.parse().ok()).flatten()
    }

    /// As it is written.
    pub fn to_text(&self) -> String {
        let mut text = Vec::with_capacity(self.0.len() + 2);
        self.write(&mut text);
        String::from_utf8(text).unwrap_or_default()
    }

    /// Appends it as it is written. Names are written several times for every grant: the place is copied as a whole, and where its
    /// segments end the signs are put in.
    pub fn write(&self, to: &mut Vec<u8>) {
        let place = self.0.strip_prefix(REPOSITORY).unwrap_or(&self.0).as_bytes();
        let Some((_end, text)) = place.split_last() else { return to.extend_from_slice(b"repo:*") };
        let start = to.len();
        to.extend_from_slice(text);
        let mut ends = to.iter_mut().skip(start).filter(|byte| **byte == END as u8);
        let Some(end_of_kind) = ends.next() else { return to.extend_from_slice(b":**") };
        *end_of_kind = b':';
        let below = ends.map(|end| *end = b'/').count();
        // An intent without a scope segment is the whole intent.
        if below == 0 && place.starts_with(INTENT.as_bytes()) {
            to.extend_from_slice(b"/*");
        }
    }

    /// Whether holding one of the two is at odds with holding the other (R2).
    pub fn overlaps(&self, other: &Resource) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// Whether `other` is this resource or lies below it.
    pub fn covers(&self, other: &Resource) -> bool {
        other.0.starts_with(&*self.0)
    }

    /// The place in the tree: every segment ends with NUL, so a prefix is an ancestor.
    pub(crate) fn place(&self) -> &str {
        &self.0
    }

    /// The places from the root down to this one, itself last.
    pub(crate) fn way(&self) -> impl Iterator<Item = &str> {
        self.ends().filter_map(|end| self.0.get(..=end))
    }

    fn segments(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.ends().filter_map(move |end| self.0.get(std::mem::replace(&mut start, end + 1)..end))
    }

    /// Where its segments end. Byte by byte: they are short, and a search for a character costs a call for each.
    fn ends(&self) -> impl Iterator<Item = usize> {
        self.0.bytes().enumerate().filter(|(_, byte)| *byte == END as u8).map(|(at, _)| at)
    }
}

fn check_kind(kind: &str) -> Result<(), ResourceError> {
    let fits = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'_' | b'.');
    if kind.is_empty() || kind.len() > KIND_BYTES_MAX || !kind.bytes().all(fits) {
        return Err(ResourceError::BadKind);
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), ResourceError> {
    if name.is_empty() {
        return Err(ResourceError::EmptyName);
    }
    if name.trim() != name || name.chars().any(char::is_control) {
        return Err(ResourceError::BadCharacter);
    }
    Ok(())
}

/// One buffer and no formatting: every acquire reads its resources.
fn place_of(segments: &[&str]) -> String {
    let mut place = String::with_capacity(segments.iter().map(|segment| segment.len() + END.len_utf8()).sum());
    for segment in segments {
        place.push_str(segment);
        place.push(END);
    }
    place
}

fn intent_place(name: &str) -> Result<String, ResourceError> {
    match name.split_once('/') {
        Some(("", _)) | Some((_, "")) | None => Err(ResourceError::NoScope),
        // A scope is a name of its own: two texts that look alike must not be two scopes.
        Some((id, scope)) if id.trim() != id || scope.trim() != scope => Err(ResourceError::BadCharacter),
        Some((id, "*")) => Ok(place_of(&["intent", id])),
        Some((id, scope)) => Ok(place_of(&["intent", id, scope])),
    }
}

fn path_place(name: &str) -> Result<String, ResourceError> {
    let mut place = format!("{REPOSITORY}path{END}");
    if name == "**" {
        return Ok(place);
    }
    for segment in name.split('/') {
        if matches!(segment, "" | "." | "..") {
            return Err(ResourceError::BadPath);
        }
        place.push_str(segment);
        place.push(END);
    }
    Ok(place)
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text())
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Resource {
    type Err = ResourceError;

    fn from_str(text: &str) -> Result<Resource, ResourceError> {
        Resource::parse(text)
    }
}

/// By place, so that ordered maps can be searched by prefix.
impl Borrow<str> for Resource {
    fn borrow(&self) -> &str {
        self.place()
    }
}

impl Serialize for Resource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_text())
    }
}

impl<'de> Deserialize<'de> for Resource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Resource, D::Error> {
        crate::text::parsed(deserializer, Resource::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn r(text: &str) -> Resource {
        Resource::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn r1_a_resource_reads_back_as_it_was_written() {
        for text in [
            "intent:X/research",
            "intent:X/*",
            "intent:X/a/b",
            "path:src/a.rs",
            "path:**",
            "issue:8057324b",
            "repo:*",
            "repo:deploy",
            "portfolio:p",
            "task:17",
            "gpu:0",
            "job:a/b:c",
            "repo:path",
        ] {
            assert_eq!(r(text).to_string(), text);
            assert_eq!(r(text).kind(), text.split(':').next().unwrap_or_default());
        }
        assert_eq!(r("repo:global").to_string(), "repo:*");
    }

    #[test]
    fn r1_one_name_has_one_form_whatever_way_it_was_composed() {
        assert_eq!(r("path:caf\u{e9}"), r("path:cafe\u{301}"));
    }

    #[test]
    fn r1_what_is_not_a_name_is_refused_with_its_reason() {
        use ResourceError::*;
        for (text, why) in [
            ("src/a.rs", NoKind),
            (":x", BadKind),
            ("Path:x", BadKind),
            ("path:", EmptyName),
            ("path:a ", BadCharacter),
            ("path:a\0b", BadCharacter),
            ("issue:a\nb", BadCharacter),
            ("path:a/", BadPath),
            ("path:/a", BadPath),
            ("path:a//b", BadPath),
            ("path:./a", BadPath),
            ("path:a/../b", BadPath),
            ("path:.", BadPath),
            ("intent:X", NoScope),
            ("intent:X/", NoScope),
            ("intent:/s", NoScope),
            ("intent:X/ s", BadCharacter),
            ("intent:X /s", BadCharacter),
        ] {
            assert_eq!(Resource::parse(text), Err(why), "{text:?}");
        }
    }

    #[test]
    fn r1_lengths_are_allowed_up_to_their_last_byte() {
        let named = |bytes: usize| format!("task:{}", "a".repeat(bytes - "task:".len()));
        assert!(Resource::parse(&named(RESOURCE_BYTES_MAX)).is_ok());
        let bytes = RESOURCE_BYTES_MAX + 1;
        assert_eq!(Resource::parse(&named(bytes)), Err(ResourceError::TooLong { bytes }));
        // U+0958 has three bytes and its normal form six.
        let grows = format!("task:{}", "\u{958}".repeat(RESOURCE_BYTES_MAX / 3 - 2));
        assert!(matches!(Resource::parse(&grows), Err(ResourceError::TooLong { .. })));
        assert!(Resource::parse(&format!("{}:x", "k".repeat(KIND_BYTES_MAX))).is_ok());
        assert_eq!(Resource::parse(&format!("{}:x", "k".repeat(KIND_BYTES_MAX + 1))), Err(ResourceError::BadKind));
        assert!(Resource::parse("a-b_c.d9:x").is_ok());
    }

    #[test]
    fn r2_overlap_is_equality_or_covering_and_nothing_else() {
        for (a, b, expected) in [
            ("path:src", "path:src/a.rs", true),
            ("path:src", "path:src2", false),
            ("path:**", "path:x", true),
            ("path:src/a", "path:src/b", false),
            ("intent:X/*", "intent:X/s", true),
            ("intent:X/s", "intent:X/t", false),
            ("intent:X/*", "intent:Y/s", false),
            ("intent:X/a", "intent:X/a/b", false),
            ("repo:*", "path:x", true),
            ("repo:global", "issue:1", true),
            ("repo:*", "repo:deploy", true),
            ("repo:deploy", "path:x", false),
            ("repo:*", "intent:X/s", false),
            ("repo:*", "task:1", false),
            ("path:**", "issue:1", false),
            ("task:1", "task:1", true),
            ("task:1", "task:11", false),
            ("a:b", "a:b/c", false),
        ] {
            assert_eq!(r(a).overlaps(&r(b)), expected, "{a} and {b}");
            assert_eq!(r(b).overlaps(&r(a)), expected, "{b} and {a}");
        }
    }
}
