//! Owns a YAML document as a tree in which every node knows its place. Bounded in depth; no anchors; no key twice.

use serde_json::{Number, Value};
use yaml_rust2::parser::{Event, MarkedEventReceiver, Parser};
use yaml_rust2::scanner::{Marker, TScalarStyle};

use super::{Place, Remark};

/// Deeper than any workflow, shallower than any stack.
const DEPTH_MAX: usize = 32;

/// A value with its place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) place: Place,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    /// A text, and whether it stood without quotes.
    Scalar(String, bool),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

impl Node {
    pub(super) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar(text, _) => Some(text),
            Kind::List(_) | Kind::Map(_) => None,
        }
    }

    pub(super) fn items(&self) -> Option<&[Node]> {
        match &self.kind {
            Kind::List(items) => Some(items),
            Kind::Scalar(..) | Kind::Map(_) => None,
        }
    }

    pub(super) fn entries(&self) -> &[(Node, Node)] {
        match &self.kind {
            Kind::Map(entries) => entries,
            Kind::Scalar(..) | Kind::List(_) => &[],
        }
    }

    /// The value of a key; one that is empty or null is not there.
    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        let found = self.entries().iter().find(|(key, _)| key.text() == Some(name)).map(|(_, value)| value);
        found.filter(|value| !value.value().is_null())
    }

    /// As JSON.
    pub(super) fn value(&self) -> Value {
        match &self.kind {
            Kind::Scalar(text, false) => Value::String(text.clone()),
            Kind::Scalar(text, true) => plain(text),
            Kind::List(items) => items.iter().map(Node::value).collect(),
            Kind::Map(entries) => {
                entries.iter().map(|(key, value)| (key.text().unwrap_or_default().to_owned(), value.value())).collect()
            }
        }
    }
}

/// A text without quotes may be a number, a truth or nothing.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => {
            let whole = text.parse::<i64>().ok().map(Number::from);
            let number = whole.or_else(|| text.parse().ok().and_then(Number::from_f64));
            number.map_or_else(|| Value::String(text.to_owned()), Value::Number)
        }
    }
}

/// Reads one document.
pub(super) fn parse(text: &str) -> Result<Node, Remark> {
    let mut builder = Builder::default();
    let parsed = Parser::new_from_str(text).load(&mut builder, false);
    if let Some(wrong) = builder.wrong {
        return Err(wrong);
    }
    if let Err(error) = parsed {
        return Err(Remark { place: place(*error.marker()), message: error.info().to_owned() });
    }
    let nothing = Node { place: Place { line: 1, column: 1 }, kind: Kind::Map(Vec::new()) };
    Ok(builder.done.unwrap_or(nothing))
}

fn place(mark: Marker) -> Place {
    Place { line: mark.line().max(1), column: mark.col() + 1 }
}

/// Builds the tree from what the parser meets.
#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    done: Option<Node>,
    wrong: Option<Remark>,
}

/// A list or mapping that is not complete.
struct Open {
    place: Place,
    is_map: bool,
    items: Vec<Node>,
}

impl MarkedEventReceiver for Builder {
    fn on_event(&mut self, event: Event, mark: Marker) {
        if self.wrong.is_some() {
            return;
        }
        let here = place(mark);
        match event {
            Event::Alias(_) => self.refuse(here, "anchors and aliases are not read here"),
            Event::Scalar(_, _, anchor, _) | Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _)
                if anchor > 0 =>
            {
                self.refuse(here, "anchors and aliases are not read here");
            }
            Event::Scalar(text, style, _, _) => {
                let kind = Kind::Scalar(text, style == TScalarStyle::Plain);
                self.add(Node { place: here, kind });
            }
            Event::SequenceStart(..) => self.begin(here, false),
            Event::MappingStart(..) => self.begin(here, true),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            _ => {}
        }
    }
}

impl Builder {
    fn refuse(&mut self, place: Place, message: impl Into<String>) {
        self.wrong = Some(Remark { place, message: message.into() });
    }

    fn begin(&mut self, place: Place, is_map: bool) {
        if self.open.len() == DEPTH_MAX {
            self.refuse(place, format!("a workflow file is at most {DEPTH_MAX} levels deep"));
            return;
        }
        self.open.push(Open { place, is_map, items: Vec::new() });
    }

    fn add(&mut self, node: Node) {
        match self.open.last_mut() {
            Some(open) => open.items.push(node),
            None => self.done = Some(node),
        }
    }

    fn end(&mut self) {
        let Some(open) = self.open.pop() else { return };
        if !open.is_map {
            return self.add(Node { place: open.place, kind: Kind::List(open.items) });
        }
        let mut entries: Vec<(Node, Node)> = Vec::new();
        let mut items = open.items.into_iter();
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            let Some(name) = key.text() else { return self.refuse(key.place, "a key is a text") };
            if entries.iter().any(|(other, _)| other.text() == Some(name)) {
                return self.refuse(key.place, format!("{name:?} comes twice"));
            }
            entries.push((key, value));
        }
        self.add(Node { place: open.place, kind: Kind::Map(entries) });
    }
}
