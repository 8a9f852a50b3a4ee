//! Owns `${…}`: how a step's input is made from the run's input, its variables and the outputs of earlier steps.
//!
//! `${root.field.path}` is looked up in a [`Scope`]; a path has names, `[n]`, `['name']` and `[*]`. A text that is one
//! expression becomes what it stands for, with its type; inside a longer text it becomes text, `null` if there is
//! nothing. `${a.${b}}` looks the inner one up first, `$${` stands for itself. Objects and lists are gone through, keys
//! are left alone. What grows beyond [`PAYLOAD_BYTES_MAX`] is refused: ten doublings make a thousand copies.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json::depth;
use crate::limits::{PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX, TEMPLATE_DEPTH_MAX};
use crate::task::{Json, raw};

/// What expressions are looked up in.
pub trait Scope {
    /// The value of `root.field`, if there is such a thing.
    fn field(&self, root: &str, field: &str) -> Option<Value>;
    /// All fields of `root`.
    fn whole(&self, root: &str) -> Option<Value>;
}

/// A JSON value with expressions in it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Value", into = "Value")]
pub struct Template {
    value: Value,
    /// The document, if there is no expression in it.
    constant: Option<Json>,
}

/// The result is no payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It has too many bytes.
    #[error("the input made from the template is larger than {PAYLOAD_BYTES_MAX} bytes")]
    TooLarge,
    /// It is nested too deep.
    #[error("the input made from the template is nested deeper than {PAYLOAD_DEPTH_MAX}")]
    TooDeep,
}

impl From<Value> for Template {
    fn from(value: Value) -> Template {
        let constant = (!has_expression(&value)).then(|| raw(value.to_string()));
        Template { value, constant }
    }
}

impl From<Template> for Value {
    fn from(template: Template) -> Value {
        template.value
    }
}

impl Default for Template {
    fn default() -> Template {
        Template::from(Value::Object(serde_json::Map::new()))
    }
}

impl Template {
    /// What was written.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The document with everything filled in.
    pub fn fill(&self, scope: &dyn Scope) -> Result<Json, Unfit> {
        match &self.constant {
            Some(constant) => Ok(constant.clone()),
            None => {
                let text = fill(&self.value, scope)?.to_string();
                if depth(&text) > PAYLOAD_DEPTH_MAX { Err(Unfit::TooDeep) } else { Ok(raw(text)) }
            }
        }
    }
}

/// Fills a value in.
pub fn fill(value: &Value, scope: &dyn Scope) -> Result<Value, Unfit> {
    let filler = Filler { scope, seen: RefCell::default(), left: Cell::new(PAYLOAD_BYTES_MAX) };
    filler.fill(value)
}

fn has_expression(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("${"),
        Value::Array(items) => items.iter().any(has_expression),
        Value::Object(fields) => fields.values().any(has_expression),
        _ => false,
    }
}

struct Filler<'a> {
    scope: &'a dyn Scope,
    /// Documents that were looked at, so that ten expressions on one input read it once.
    seen: RefCell<HashMap<String, Option<Rc<Value>>>>,
    left: Cell<usize>,
}

impl Filler<'_> {
    fn fill(&self, value: &Value) -> Result<Value, Unfit> {
        Ok(match value {
            Value::String(text) => self.text(text, 0)?,
            Value::Array(items) => Value::Array(items.iter().map(|item| self.fill(item)).collect::<Result<_, _>>()?),
            Value::Object(fields) => {
                let filled = fields.iter().map(|(name, field)| Ok((name.clone(), self.fill(field)?)));
                Value::Object(filled.collect::<Result<_, _>>()?)
            }
            other => other.clone(),
        })
    }

    fn text(&self, text: &str, depth: usize) -> Result<Value, Unfit> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, from) = rest.split_at(at);
            // The matching brace, or everything to the end if there is none: then it is not an expression.
            let Some(end) = matching_brace(from) else { break };
            let (expression, after) = from.split_at(end + 1);
            if let Some(before) = before.strip_suffix('$') {
                filled.push_str(before);
                filled.push_str(expression);
            } else {
                let inner = expression.get(2..end).unwrap_or_default();
                let value = self.expression(inner, depth)?;
                if before.is_empty() && after.is_empty() && filled.is_empty() {
                    return Ok(value);
                }
                filled.push_str(before);
                push_text(&mut filled, &value);
            }
            self.spend(filled.len().saturating_sub(PAYLOAD_BYTES_MAX))?;
            rest = after;
        }
        filled.push_str(rest);
        Ok(Value::String(filled))
    }

    fn expression(&self, inner: &str, depth: usize) -> Result<Value, Unfit> {
        if depth > TEMPLATE_DEPTH_MAX {
            return Ok(Value::Null);
        }
        if !inner.contains("${") {
            return self.look_up(inner);
        }
        match self.text(inner, depth + 1)? {
            Value::String(path) => self.look_up(&path),
            other => self.look_up(&other.to_string()),
        }
    }

    fn look_up(&self, path: &str) -> Result<Value, Unfit> {
        let path = path.trim();
        if path.is_empty() {
            return Ok(Value::String(String::new()));
        }
        let segments = segments(path);
        let mut names = segments.iter();
        let Some(Segment::Name(root)) = names.next() else { return Ok(Value::Null) };
        let document = match names.next() {
            Some(Segment::Name(field)) => self.field(root, Some(field)),
            None => self.field(root, None),
            Some(_) => None,
        };
        let Some(document) = document else { return Ok(Value::Null) };
        let found = walk(&document, names.as_slice());
        self.spend(found.as_ref().map_or(0, |found| size_of(found)))?;
        Ok(found.map_or(Value::Null, std::borrow::Cow::into_owned))
    }

    fn field(&self, root: &str, field: Option<&str>) -> Option<Rc<Value>> {
        let key = format!("{root}.{}", field.unwrap_or_default());
        let mut seen = self.seen.borrow_mut();
        let look = || field.map_or_else(|| self.scope.whole(root), |field| self.scope.field(root, field));
        seen.entry(key).or_insert_with(|| look().map(Rc::new)).clone()
    }

    fn spend(&self, bytes: usize) -> Result<(), Unfit> {
        let left = self.left.get().checked_sub(bytes).ok_or(Unfit::TooLarge)?;
        self.left.set(left);
        Ok(())
    }
}

/// Where the expression that starts with `${` ends.
fn matching_brace(text: &str) -> Option<usize> {
    let mut open = 0usize;
    let mut last = ' ';
    for (at, character) in text.char_indices() {
        match character {
            '{' if last == '$' => open += 1,
            '}' => {
                open = open.saturating_sub(1);
                if open == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
        last = character;
    }
    None
}

enum Segment {
    Name(String),
    Index(usize),
    All,
}

/// `a.b[0]['c d'][*]` as its parts.
fn segments(path: &str) -> Vec<Segment> {
    let mut found = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            let Some((key, after)) = inside.split_once(']') else { break };
            let key = key.trim();
            let name = key.trim_matches(|quote| quote == '\'' || quote == '"');
            found.push(match (key, key.parse()) {
                ("*", _) => Segment::All,
                (_, Ok(index)) => Segment::Index(index),
                _ => Segment::Name(name.to_owned()),
            });
            rest = after;
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            found.push(if name == "*" { Segment::All } else { Segment::Name(name.to_owned()) });
            rest = after;
        }
        rest = rest.strip_prefix('.').unwrap_or(rest);
    }
    found
}

fn walk<'a>(value: &'a Value, path: &[Segment]) -> Option<std::borrow::Cow<'a, Value>> {
    use std::borrow::Cow;
    let Some((first, rest)) = path.split_first() else { return Some(Cow::Borrowed(value)) };
    match (first, value) {
        (Segment::Name(name), Value::Object(fields)) => walk(fields.get(name)?, rest),
        (Segment::Name(name), Value::Array(items)) if name == "length()" => Some(Cow::Owned(items.len().into())),
        // A name of digits on a list is what people write for an index.
        (Segment::Name(name), Value::Array(items)) => walk(items.get(name.parse::<usize>().ok()?)?, rest),
        (Segment::Index(index), Value::Array(items)) => walk(items.get(*index)?, rest),
        (Segment::All, Value::Array(items)) => {
            let found = items.iter().filter_map(|item| walk(item, rest).map(Cow::into_owned));
            Some(Cow::Owned(Value::Array(found.collect())))
        }
        (Segment::All, Value::Object(fields)) => {
            let found = fields.values().filter_map(|item| walk(item, rest).map(Cow::into_owned));
            Some(Cow::Owned(Value::Array(found.collect())))
        }
        _ => None,
    }
}

fn push_text(text: &mut String, value: &Value) {
    match value {
        Value::String(value) => text.push_str(value),
        other => text.push_str(&other.to_string()),
    }
}

/// About how many bytes a value takes as text.
fn size_of(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| size_of(item) + 1).sum::<usize>(),
        Value::Object(fields) => 2 + fields.iter().map(|(name, field)| name.len() + 4 + size_of(field)).sum::<usize>(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Documents(Value);

    impl Scope for Documents {
        fn field(&self, root: &str, field: &str) -> Option<Value> {
            self.0.get(root)?.get(field).cloned()
        }

        fn whole(&self, root: &str) -> Option<Value> {
            self.0.get(root).cloned()
        }
    }

    fn filled(template: Value) -> Value {
        let scope = Documents(json!({
            "workflow": { "input": { "a": 1, "o": { "x": [10, { "y": "z" }] }, "k d": true, "which": "a", "n": null } },
            "first": { "output": { "list": [{ "v": 1 }, { "v": 2 }], "text": "hi" } },
        }));
        fill(&template, &scope).expect("small enough")
    }

    #[test]
    fn a_text_that_is_one_expression_keeps_the_type_of_what_it_names() {
        assert_eq!(filled(json!("${workflow.input.a}")), json!(1));
        assert_eq!(filled(json!("${workflow.input.o}")), json!({ "x": [10, { "y": "z" }] }));
        assert_eq!(filled(json!("${workflow.input.n}")), json!(null));
        assert_eq!(filled(json!("${nobody.output.x}")), json!(null));
        assert_eq!(filled(json!("${}")), json!(""));
        assert_eq!(filled(json!("${first}")), json!({ "output": { "list": [{ "v": 1 }, { "v": 2 }], "text": "hi" } }));
    }

    #[test]
    fn paths_reach_into_objects_and_lists() {
        assert_eq!(filled(json!("${workflow.input.o.x[1].y}")), json!("z"));
        assert_eq!(filled(json!("${workflow.input['k d']}")), json!(true));
        assert_eq!(filled(json!("${first.output.list[*].v}")), json!([1, 2]));
        assert_eq!(filled(json!("${first.output.list.length()}")), json!(2));
        assert_eq!(filled(json!("${first.output.list[9].v}")), json!(null));
    }

    #[test]
    fn inside_a_longer_text_an_expression_becomes_text() {
        assert_eq!(filled(json!("a=${workflow.input.a}, ${first.output.text}!")), json!("a=1, hi!"));
        assert_eq!(filled(json!("${workflow.input.a}${workflow.input.a}")), json!("11"));
        assert_eq!(filled(json!("x ${nobody.y}")), json!("x null"));
        assert_eq!(filled(json!("o=${workflow.input.o}")), json!(r#"o={"x":[10,{"y":"z"}]}"#));
    }

    #[test]
    fn an_expression_can_name_another_and_a_doubled_dollar_stands_for_itself() {
        assert_eq!(filled(json!("${workflow.input.${workflow.input.which}}")), json!(1));
        assert_eq!(filled(json!("cost: $${workflow.input.a}")), json!("cost: ${workflow.input.a}"));
        assert_eq!(filled(json!("$${workflow.input.a}")), json!("${workflow.input.a}"));
        assert_eq!(filled(json!("open ${workflow")), json!("open ${workflow"));
    }

    #[test]
    fn objects_and_lists_are_gone_through_and_keys_are_left_alone() {
        let template =
            json!({ "${workflow.input.a}": ["${workflow.input.a}", { "b": "${first.output.text}" }], "c": 3 });
        assert_eq!(filled(template), json!({ "${workflow.input.a}": [1, { "b": "hi" }], "c": 3 }));
    }

    #[test]
    fn what_grows_too_large_or_nests_too_deep_ends() {
        let scope = Documents(json!({ "a": { "output": "x".repeat(PAYLOAD_BYTES_MAX / 2) } }));
        assert_eq!(fill(&json!(["${a.output}", "${a.output}", "${a.output}"]), &scope), Err(Unfit::TooLarge));
        let deep = format!("{}a{}", "${".repeat(10_000), "}".repeat(10_000));
        assert_eq!(fill(&json!(deep), &scope), Ok(Value::Null));
    }
}
