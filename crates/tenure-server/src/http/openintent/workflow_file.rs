//! Owns reading workflow files: YAML in the dialects of the OpenIntent project, compiled to the ledger's graph of steps.
//!
//! What is wrong is said with line and column. What the project's files may contain and this server does not use is a
//! warning, not an error; inside `retry` it is an error, because a retry that is silently not the one asked for is worse
//! than none. Anchors and aliases are refused: a small file could stand for a huge one.

mod yaml;

use std::fmt;

use serde_json::{Map, Value};
use tenure_core::Holder;
use tenure_core::limits::{ATTEMPTS_MAX, RETRY_DELAY_MS_MAX, TEXT_BYTES_MAX, TITLE_BYTES_MAX};
use tenure_core::retry::{Backoff, RetryRule};
use tenure_core::workflow::{Graph, Step};

use self::yaml::Node;

/// A place in a file; both count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// Something about a place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Where.
    pub place: Place,
    /// What.
    pub message: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.place.line, self.place.column, self.message)
    }
}

/// A workflow, ready to run.
#[derive(Debug, Clone)]
pub struct WorkflowFile {
    /// Its name.
    pub name: Box<str>,
    /// What to do.
    pub graph: Graph,
    /// What stands in the file and is not used.
    pub warnings: Vec<Remark>,
}

/// Reads a file; all that is wrong with it, if something is.
pub fn read(text: &str) -> Result<WorkflowFile, Vec<Remark>> {
    let root = yaml::parse(text).map_err(|remark| vec![remark])?;
    let mut reader = Reader::default();
    let file = reader.file(&root);
    match file {
        Some((name, graph)) if reader.errors.is_empty() => Ok(WorkflowFile { name, graph, warnings: reader.warnings }),
        _ => Err(reader.errors),
    }
}

/// Keys of the project's files beside those that are used here.
const USED: [&str; 3] = ["openintent", "info", "workflow"];
const STEP: [&str; 8] =
    ["title", "description", "assign", "depends_on", "retry", "initial_state", "state", "constraints"];
const RETRY: [&str; 13] = [
    "max_attempts",
    "max_retries",
    "backoff",
    "strategy",
    "base_delay_seconds",
    "base_delay_ms",
    "initial_delay_ms",
    "max_delay_seconds",
    "max_delay_ms",
    "fallback_agent",
    "fallback_agent_id",
    "retryable_errors",
    "failure_threshold",
];

#[derive(Default)]
struct Reader {
    errors: Vec<Remark>,
    warnings: Vec<Remark>,
}

impl Reader {
    fn wrong(&mut self, node: &Node, message: impl Into<String>) {
        self.errors.push(Remark { place: node.place, message: message.into() });
    }

    fn unused(&mut self, node: &Node, known: &[&str]) {
        for (key, _) in node.entries() {
            if !key.text().is_some_and(|name| known.contains(&name)) {
                let message = format!("{:?} is not used by this server", key.text().unwrap_or("this key"));
                self.warnings.push(Remark { place: key.place, message });
            }
        }
    }

    fn file(&mut self, root: &Node) -> Option<(Box<str>, Graph)> {
        if root.entries().is_empty() {
            self.wrong(root, "a workflow file is a mapping with the keys openintent, info and workflow");
            return None;
        }
        self.unused(root, &USED);
        match root.get("openintent") {
            None => self.wrong(root, "the key openintent: \"1.0\" is missing"),
            Some(version) if version.text() == Some("1.0") => {}
            Some(version) => self.wrong(version, "this server reads openintent: \"1.0\""),
        }
        let name = self.name(root);
        let Some(workflow) = root.get("workflow") else {
            self.wrong(root, "the key workflow with the steps is missing");
            return None;
        };
        if workflow.entries().is_empty() {
            self.wrong(workflow, "workflow is a mapping from the names of steps to steps, at least one");
            return None;
        }
        let steps: Vec<Step> = workflow.entries().iter().map(|(key, step)| self.step(key, step)).collect();
        match Graph::new(steps) {
            Ok(graph) => Some((name?, graph)),
            Err(why) => {
                let key = why.step().and_then(|at| workflow.entries().get(at)).map_or(workflow, |(key, _)| key);
                self.wrong(key, why.to_string());
                None
            }
        }
    }

    fn name(&mut self, root: &Node) -> Option<Box<str>> {
        let Some(info) = root.get("info") else {
            self.wrong(root, "the key info with a name is missing");
            return None;
        };
        let name = info.get("name").and_then(|name| self.text(name, TITLE_BYTES_MAX));
        if name.as_ref().is_none_or(|name| name.trim().is_empty()) {
            self.wrong(info, "info needs a name");
            return None;
        }
        name.map(Into::into)
    }

    fn text(&mut self, node: &Node, max: usize) -> Option<String> {
        match node.text() {
            Some(text) if text.len() <= max => Some(text.to_owned()),
            Some(_) => {
                self.wrong(node, format!("at most {max} bytes"));
                None
            }
            None => {
                self.wrong(node, "this is a text");
                None
            }
        }
    }

    fn step(&mut self, key: &Node, node: &Node) -> Step {
        let name = self.text(key, TITLE_BYTES_MAX).unwrap_or_default();
        self.unused(node, &STEP);
        let title = node.get("title").and_then(|title| self.text(title, TITLE_BYTES_MAX));
        if title.is_none() {
            self.wrong(key, format!("step {name:?} needs a title"));
        }
        let (retry, fallback) = node.get("retry").map_or((RetryRule::NEVER, None), |retry| self.retry(retry));
        Step {
            title: title.unwrap_or_default().into(),
            description: node.get("description").and_then(|text| self.text(text, TEXT_BYTES_MAX)).unwrap_or_default(),
            assign: node.get("assign").and_then(|agent| self.holder(agent)),
            depends_on: node.get("depends_on").map_or_else(Vec::new, |first| self.names(first)),
            retry,
            fallback,
            state: self.object(node.get("initial_state").or_else(|| node.get("state"))),
            constraints: self.object(node.get("constraints")),
            name: name.into(),
        }
    }

    fn holder(&mut self, node: &Node) -> Option<Holder> {
        let text = self.text(node, TITLE_BYTES_MAX)?;
        match Holder::parse(&text) {
            Ok(holder) => Some(holder),
            Err(why) => {
                self.wrong(node, why.to_string());
                None
            }
        }
    }

    /// A list of names, or one.
    fn names(&mut self, node: &Node) -> Vec<Box<str>> {
        let one = std::slice::from_ref(node);
        let nodes = node.items().unwrap_or(one);
        nodes.iter().filter_map(|node| self.text(node, TITLE_BYTES_MAX)).map(Into::into).collect()
    }

    fn object(&mut self, node: Option<&Node>) -> Map<String, Value> {
        match node.map(Node::value) {
            None => Map::new(),
            Some(Value::Object(map)) => map,
            Some(Value::Array(rules)) => [("rules".to_owned(), Value::Array(rules))].into_iter().collect(),
            Some(_) => {
                if let Some(node) = node {
                    self.wrong(node, "this is a mapping");
                }
                Map::new()
            }
        }
    }

    /// The retry rule of a step, in any of the three dialects.
    fn retry(&mut self, node: &Node) -> (RetryRule, Option<Holder>) {
        for (key, _) in node.entries() {
            if !key.text().is_some_and(|name| RETRY.contains(&name)) {
                self.wrong(key, format!("retry knows {}", RETRY.join(", ")));
            }
        }
        let attempts = u64::from(ATTEMPTS_MAX);
        let counted = self.number(node, "max_attempts", 1, 1, attempts);
        let retries = self.number(node, "max_retries", 1, 0, attempts - 1).map(|retries| retries + 1);
        let default = RetryRule::default();
        let base = self.number(node, "base_delay_seconds", 1_000, 0, RETRY_DELAY_MS_MAX / 1_000);
        let base = base.or_else(|| self.number(node, "base_delay_ms", 1, 0, RETRY_DELAY_MS_MAX));
        let base = base.or_else(|| self.number(node, "initial_delay_ms", 1, 0, RETRY_DELAY_MS_MAX));
        let longest = self.number(node, "max_delay_seconds", 1_000, 0, RETRY_DELAY_MS_MAX / 1_000);
        let longest = longest.or_else(|| self.number(node, "max_delay_ms", 1, 0, RETRY_DELAY_MS_MAX));
        let max_attempts = counted.or(retries).and_then(|count| u32::try_from(count).ok());
        let rule = RetryRule {
            backoff: self.backoff(node),
            base_delay_ms: base.unwrap_or(default.base_delay_ms),
            max_delay_ms: longest.unwrap_or(RETRY_DELAY_MS_MAX),
            max_attempts: if self.is_none(node) { 1 } else { max_attempts.unwrap_or(default.max_attempts) },
        };
        let fallback = node.get("fallback_agent").or_else(|| node.get("fallback_agent_id"));
        (rule, fallback.and_then(|agent| self.holder(agent)))
    }

    fn word(node: &Node) -> Option<&Node> {
        node.get("backoff").or_else(|| node.get("strategy"))
    }

    fn is_none(&self, node: &Node) -> bool {
        Reader::word(node).and_then(Node::text) == Some("none")
    }

    fn backoff(&mut self, node: &Node) -> Backoff {
        let Some(word) = Reader::word(node) else { return Backoff::default() };
        match word.text() {
            Some("fixed" | "constant" | "none") => Backoff::Fixed,
            Some("linear") => Backoff::Linear,
            Some("exponential") => Backoff::Exponential,
            _ => {
                self.wrong(word, "backoff is one of fixed, linear, exponential");
                Backoff::default()
            }
        }
    }

    /// A whole number in this unit.
    fn number(&mut self, node: &Node, name: &str, unit: u64, min: u64, max: u64) -> Option<u64> {
        let value = node.get(name)?;
        let number = value.text().and_then(|text| text.parse().ok()).filter(|number| (min..=max).contains(number));
        if number.is_none() {
            self.wrong(value, format!("{name} is a whole number from {min} to {max}"));
        }
        number.map(|number| number * unit)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SEED: &str = r#"openintent: "1.0"
info:
  name: "Resilient Pipeline"

workflow:
  fetch:
    title: "Fetch Data"
    assign: fetcher
    retry:
      max_attempts: 3
      backoff: exponential
      base_delay_seconds: 2

  process:
    title: "Process Data"
    assign: processor
    depends_on: [fetch]
    retry:
      max_attempts: 5
      backoff: linear
      base_delay_seconds: 1
"#;

    fn complaint(text: &str) -> String {
        let remarks = read(text).expect_err("a wrong file");
        remarks.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn the_file_of_the_guide_is_read_as_it_is_written() {
        let file = read(SEED).expect("a right file");
        assert_eq!((&*file.name, file.warnings.len()), ("Resilient Pipeline", 0));
        let steps = file.graph.steps();
        assert_eq!(steps[0].retry, RetryRule::new(Backoff::Exponential, 2_000, 3).expect("a rule"));
        assert_eq!(steps[1].retry, RetryRule::new(Backoff::Linear, 1_000, 5).expect("a rule"));
        assert_eq!(steps[1].assign.as_ref().map(Holder::as_str), Some("processor"));
        assert_eq!(file.graph.before(1), [0]);
    }

    #[test]
    fn the_three_dialects_of_retry_mean_the_same() {
        let rule = |retry: &str| {
            let text = format!(
                "openintent: \"1.0\"\ninfo: {{name: n}}\nworkflow:\n  a:\n    title: t\n    retry: {{{retry}}}\n"
            );
            read(&text).map(|file| file.graph.steps()[0].retry)
        };
        let seed = rule("max_attempts: 3, backoff: linear, base_delay_seconds: 2, max_delay_ms: 9000");
        let page = rule("max_attempts: 3, backoff: linear, initial_delay_ms: 2000, max_delay_ms: 9000");
        let api = rule("max_retries: 2, strategy: linear, base_delay_ms: 2000, max_delay_ms: 9000");
        assert!(seed.is_ok());
        assert_eq!(seed, page);
        assert_eq!(seed, api);
        assert_eq!(rule("strategy: none").map(|rule| rule.max_attempts), Ok(1));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_column() {
        let head = "openintent: \"1.0\"\ninfo:\n  name: n\nworkflow:\n";
        for (body, said) in [
            ("  a:\n    title: t\n    depends_on: [b]\n", "line 5, column 3: step \"a\" depends on \"b\""),
            ("  a:\n    title: t\n    retry:\n      backoff: banana\n", "line 8, column 16: backoff is one of"),
            (
                "  a:\n    title: t\n    retry:\n      max_attempts: 0\n",
                "line 8, column 21: max_attempts is a whole number",
            ),
            ("  a:\n    title: t\n    retry:\n      tries: 3\n", "line 8, column 7: retry knows"),
            ("  a:\n    assign: x\n", "line 5, column 3: step \"a\" needs a title"),
            ("  a:\n    title: t\n    depends_on: [a]\n", "steps wait for each other: a -> a"),
            ("  a: {title: t\n", "line"),
            ("  a:\n    title: &x t\n  b:\n    title: *x\n", "anchors"),
            ("  a:\n    title: t\n  a:\n    title: t\n", "line 7, column 3: \"a\" comes twice"),
        ] {
            let complaint = complaint(&format!("{head}{body}"));
            assert!(complaint.contains(said), "{body}\nsaid: {complaint}");
        }
        assert!(complaint("").contains("a workflow file is a mapping"));
        assert!(
            complaint("openintent: \"2.0\"\ninfo: {name: n}\nworkflow: {a: {title: t}}").contains("line 1, column 13")
        );
    }

    #[test]
    fn what_is_not_used_is_a_warning() {
        let file = read(&format!("{SEED}agents: {{}}\n")).expect("a right file");
        assert_eq!(file.warnings.len(), 1);
        assert!(file.warnings[0].to_string().contains("\"agents\" is not used"), "{}", file.warnings[0]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_with_a_place(text in "\\PC{0,80}|[a-z:\\[\\]{}\\-# &*\"'\n]{0,120}") {
            if let Err(remarks) = read(&text) {
                prop_assert!(!remarks.is_empty() && remarks.iter().all(|remark| remark.place.line >= 1));
            }
        }

        #[test]
        fn a_file_with_one_character_changed_is_read_or_refused(at in 0..400usize, with in any::<char>()) {
            let mut text: Vec<char> = SEED.chars().collect();
            let at = at % text.len();
            text[at] = with;
            let _ = read(&text.into_iter().collect::<String>());
        }
    }
}
