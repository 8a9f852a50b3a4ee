//! Owns how a command says that it did not succeed: a stable code, a sentence, what the reader can do next, and the
//! exit code. No hint ever suggests taking a lease away from its holder.

use serde_json::{Map, Value};

use crate::exit::Exit;

/// A command that did not succeed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) code: String,
    pub(crate) message: String,
    /// What a person reads instead of the message: more lines, the same facts.
    pub(crate) human: Option<Box<str>>,
    pub(crate) details: Map<String, Value>,
    pub(crate) hints: Vec<String>,
}

/// What every command returns.
pub(crate) type Outcome = Result<Exit, Failure>;

impl Failure {
    pub(crate) fn new(exit: Exit, code: impl Into<String>, message: impl Into<String>) -> Failure {
        Failure {
            exit,
            code: code.into(),
            message: message.into(),
            human: None,
            details: Map::new(),
            hints: Vec::new(),
        }
    }

    /// Wrong usage that clap cannot see.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::USAGE, "invalid_args", message)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hints.push(hint.into());
        self
    }

    pub(crate) fn detail(mut self, name: &str, value: impl Into<Value>) -> Failure {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    pub(crate) fn human(mut self, text: impl Into<String>) -> Failure {
        self.human = Some(text.into().into());
        self
    }
}

/// Whatever has no better name: the whole chain of causes in one line.
impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::new(Exit::FAILURE, "internal_error", format!("{error:#}"))
    }
}
