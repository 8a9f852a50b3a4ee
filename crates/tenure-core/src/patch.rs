//! Owns how a part of a document's state is changed: `set`, `append` and `remove` at a path.
//!
//! A path is written `a/b` or `/a/b`; with the leading slash `~1` stands for a slash inside a key and `~0` for a tilde, as in
//! a JSON pointer. The first segment is the scope whose lease guards the write (D2). All patches of one write apply, or none.

use serde_json::{Map, Value};

use crate::limits::{PATCH_PATH_BYTES_MAX, STATE_BYTES_MAX, STATE_DEPTH_MAX};

/// The state of a document.
pub type State = Map<String, Value>;

/// Where in the state: at least one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchPath(Vec<String>);

/// What happens there.
#[derive(Debug, Clone, PartialEq)]
pub enum PatchOp {
    /// The value is there now; objects on the way are made.
    Set(Value),
    /// The value is the last of the list there; a missing list is made.
    Append(Value),
    /// Nothing is there now.
    Remove,
}

/// One change of a part of the state.
#[derive(Debug, Clone, PartialEq)]
pub struct Patch {
    /// Where.
    pub path: PatchPath,
    /// What.
    pub op: PatchOp,
}

/// Why a patch cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPatch {
    /// The path is empty, has an empty segment or is too long.
    #[error(
        "a path has 1 to {PATCH_PATH_BYTES_MAX} bytes and no empty segment, for example \"progress\" or \"/result/rows\""
    )]
    Path,
    /// Something on the way is neither an object nor a list with that place.
    #[error("there is no place {0:?}: what is above it has no such part")]
    NoPlace(String),
    /// An append to something that is not a list.
    #[error("{0:?} is not a list, so nothing can be appended to it")]
    NotAList(String),
    /// The state would be too large.
    #[error("a state has at most {STATE_BYTES_MAX} bytes of JSON, this one would have {0}")]
    TooLarge(usize),
    /// The state would be too deep.
    #[error("a state is at most {STATE_DEPTH_MAX} levels deep")]
    TooDeep,
}

impl PatchPath {
    /// Reads a path.
    pub fn parse(text: &str) -> Result<PatchPath, BadPatch> {
        if text.len() > PATCH_PATH_BYTES_MAX {
            return Err(BadPatch::Path);
        }
        let segments: Vec<String> = match text.strip_prefix('/') {
            Some(pointer) => pointer.split('/').map(|part| part.replace("~1", "/").replace("~0", "~")).collect(),
            None => text.split('/').map(str::to_owned).collect(),
        };
        if segments.iter().any(String::is_empty) {
            return Err(BadPatch::Path);
        }
        Ok(PatchPath(segments))
    }

    /// The first segment: the part of the state that a lease guards.
    pub fn scope(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    fn text(&self) -> String {
        self.0.join("/")
    }
}

/// Applies every patch, or none.
pub fn apply(state: &State, patches: Vec<Patch>) -> Result<State, BadPatch> {
    let mut root = Value::Object(state.clone());
    for Patch { path, op } in patches {
        match op {
            PatchOp::Remove => remove(&mut root, &path),
            PatchOp::Set(value) => *place(&mut root, &path)? = value,
            PatchOp::Append(value) => match place(&mut root, &path)? {
                Value::Array(list) => list.push(value),
                nothing @ Value::Null => *nothing = Value::Array(vec![value]),
                _ => return Err(BadPatch::NotAList(path.text())),
            },
        }
    }
    match root {
        Value::Object(state) => check_size(state),
        _ => Ok(State::new()),
    }
}

/// The same state, if it is within bounds: what cannot be read back must not be written.
pub fn check_size(state: State) -> Result<State, BadPatch> {
    if depth(state.values()) > STATE_DEPTH_MAX {
        return Err(BadPatch::TooDeep);
    }
    match serde_json::to_string(&state).map_or(usize::MAX, |text| text.len()) {
        bytes if bytes > STATE_BYTES_MAX => Err(BadPatch::TooLarge(bytes)),
        _ => Ok(state),
    }
}

fn depth<'a>(values: impl Iterator<Item = &'a Value>) -> usize {
    let below = values.map(|value| match value {
        Value::Object(map) => depth(map.values()),
        Value::Array(list) => depth(list.iter()),
        _ => 0,
    });
    1 + below.max().unwrap_or(0)
}

/// The value at `path`, made as null if the object around it does not have it yet.
fn place<'a>(root: &'a mut Value, path: &PatchPath) -> Result<&'a mut Value, BadPatch> {
    let mut at = root;
    for segment in &path.0 {
        if at.is_null() {
            *at = Value::Object(State::new());
        }
        at = match at {
            Value::Object(map) => map.entry(segment.as_str()).or_insert(Value::Null),
            Value::Array(list) => {
                index(segment).and_then(|index| list.get_mut(index)).ok_or_else(|| BadPatch::NoPlace(path.text()))?
            }
            _ => return Err(BadPatch::NoPlace(path.text())),
        };
    }
    Ok(at)
}

/// Removing what is not there is done already.
fn remove(root: &mut Value, path: &PatchPath) {
    let Some((last, way)) = path.0.split_last() else { return };
    let mut at = root;
    for segment in way {
        let next = match at {
            Value::Object(map) => map.get_mut(segment),
            Value::Array(list) => index(segment).and_then(|index| list.get_mut(index)),
            _ => None,
        };
        let Some(next) = next else { return };
        at = next;
    }
    match at {
        Value::Object(map) => drop(map.remove(last)),
        Value::Array(list) => {
            if let Some(index) = index(last).filter(|index| *index < list.len()) {
                list.remove(index);
            }
        }
        _ => {}
    }
}

fn index(segment: &str) -> Option<usize> {
    segment.bytes().all(|byte| byte.is_ascii_digit()).then(|| segment.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn patched(state: Value, patches: &[(&str, &str, Value)]) -> Result<Value, BadPatch> {
        let Value::Object(state) = state else { panic!("a state is an object") };
        let patches = patches.iter().map(|(op, path, value)| {
            let op = match *op {
                "set" => PatchOp::Set(value.clone()),
                "append" => PatchOp::Append(value.clone()),
                _ => PatchOp::Remove,
            };
            Ok(Patch { path: PatchPath::parse(path)?, op })
        });
        apply(&state, patches.collect::<Result<_, _>>()?).map(Value::Object)
    }

    #[test]
    fn a_path_means_the_same_with_and_without_its_leading_slash() {
        for path in ["a/b", "/a/b"] {
            assert_eq!(patched(json!({}), &[("set", path, json!(1))]), Ok(json!({"a": {"b": 1}})));
        }
        assert_eq!(patched(json!({}), &[("set", "/a~1b/c~0", json!(1))]), Ok(json!({"a/b": {"c~": 1}})));
        assert_eq!(PatchPath::parse("/a~1b/c").map(|path| path.scope().to_owned()), Ok("a/b".to_owned()));
    }

    #[test]
    fn set_append_and_remove_do_what_they_say() {
        let state = json!({"list": [1], "n": {"k": 1}, "x": 1});
        let changes = [
            ("append", "list", json!(2)),
            ("append", "fresh", json!(1)),
            ("set", "list/0", json!(9)),
            ("remove", "n/k", Value::Null),
            ("remove", "not/there", Value::Null),
            ("remove", "x", Value::Null),
        ];
        assert_eq!(patched(state, &changes), Ok(json!({"list": [9, 2], "n": {}, "fresh": [1]})));
    }

    #[test]
    fn what_has_no_place_is_refused_and_nothing_of_the_write_happens() {
        let state = json!({"n": 1, "list": [1]});
        for (op, path, why) in [
            ("set", "n/k", BadPatch::NoPlace("n/k".to_owned())),
            ("set", "list/7", BadPatch::NoPlace("list/7".to_owned())),
            ("append", "n", BadPatch::NotAList("n".to_owned())),
            ("set", "", BadPatch::Path),
            ("set", "/", BadPatch::Path),
            ("set", "a//b", BadPatch::Path),
        ] {
            assert_eq!(
                patched(state.clone(), &[("set", "ok", json!(1)), (op, path, json!(2))]),
                Err(why),
                "{op} {path:?}"
            );
        }
    }

    #[test]
    fn a_state_that_could_not_be_read_back_is_not_made() {
        let deep = vec!["a"; STATE_DEPTH_MAX + 1].join("/");
        assert_eq!(patched(json!({}), &[("set", &deep, json!(1))]), Err(BadPatch::TooDeep));
        let large = "x".repeat(STATE_BYTES_MAX);
        assert!(matches!(patched(json!({}), &[("set", "a", json!(large))]), Err(BadPatch::TooLarge(_))));
    }

    proptest! {
        #[test]
        fn a_fraction_reads_back_as_it_was_written(number in any::<f64>().prop_filter("JSON has no others", |number| number.is_finite())) {
            let text = serde_json::to_string(&json!({ "at": number })).expect("JSON");
            let read: Value = serde_json::from_str(&text).expect("JSON");
            prop_assert_eq!(read["at"].as_f64(), Some(number));
        }

        #[test]
        fn any_path_text_is_read_or_refused_and_a_set_value_is_found_again(text in "\\PC{0,12}|[a/~01]{0,12}", value in 0..9i64) {
            if let Ok(path) = PatchPath::parse(&text) {
                let mut segments = path.0.clone();
                let state = apply(&State::new(), vec![Patch { path, op: PatchOp::Set(json!(value)) }]).expect("an empty state has room");
                let mut at = &Value::Object(state.clone());
                for segment in segments.drain(..) {
                    at = &at[&segment];
                }
                prop_assert_eq!(at, &json!(value));
                let path = PatchPath::parse(&text).expect("read before");
                let scope = path.scope().to_owned();
                let emptied = apply(&state, vec![Patch { path, op: PatchOp::Remove }]).expect("removing fits");
                prop_assert!(emptied.keys().all(|key| *key == scope));
            }
        }
    }
}
