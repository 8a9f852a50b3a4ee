//! Owns everything that reaches standard output and standard error: the JSON envelope, the texts for people, colours.
//!
//! With `--json` every outcome, also every error, is one envelope on standard output:
//!
//! ```json
//! {"schema_version": 1, "ok": true, "data": {}}
//! {"schema_version": 1, "ok": false, "error": {"code": "held", "message": "…", "details": {}}}
//! ```
//!
//! `details` is left out when there is nothing to say; hints are `details.suggestions`. Without `--json`, results go to
//! standard output and errors to standard error.

use std::io::{self, Write};
use std::sync::OnceLock;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::exit::Exit;
use crate::failure::Failure;

/// Why standard output takes no more, once it does not.
static UNWRITTEN: OnceLock<io::Error> = OnceLock::new();

/// The version of the envelope; it grows when a reader of the old one would be wrong.
const SCHEMA_VERSION: u32 = 1;

/// The text of `tenure help json`.
pub(crate) const TOPIC: &str = r#"With --json every outcome, also every error, is one envelope on standard output:

    {"schema_version": 1, "ok": true, "data": {...}}
    {"schema_version": 1, "ok": false, "error": {"code": "held", "message": "...", "details": {...}}}

'code' is stable and for programs, 'message' is for people. 'details' has what the server said beside it (for a
refused acquire 'conflict' with holder, token, acquired_at and expires_at) and 'suggestions'; it is left out when there
is nothing to say. Times are RFC 3339 in UTC. 'tenure lease watch' prints one envelope per line, one for each event;
'tenure serve' prints one line when it is ready. 'tenure run' prints an envelope only for its own failures: standard
output belongs to the command it runs.
"#;

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Color {
    /// Applies to both streams from here on. Styles are written always; streams that want none strip them.
    pub(crate) fn apply(self) {
        match self {
            Color::Auto => {}
            Color::Always => anstream::ColorChoice::Always.write_global(),
            Color::Never => anstream::ColorChoice::Never.write_global(),
        }
    }
}

/// Where results and errors go, and in which form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) json: bool,
}

impl Output {
    /// The result of a command: `data` in the envelope, or the text.
    pub(crate) fn result(self, data: &impl Serialize, text: impl FnOnce() -> String) {
        if self.json {
            print_envelope(&Envelope::success(data), true);
        } else {
            tell(anstream::stdout(), &text());
        }
    }

    /// One of many results: one line each.
    pub(crate) fn line(self, data: &impl Serialize, text: impl FnOnce() -> String) {
        if self.json {
            print_envelope(&Envelope::success(data), false);
        } else {
            tell(anstream::stdout(), &text());
        }
    }

    /// Text as it is, for example a script or a help page.
    pub(crate) fn plain(self, text: &str) {
        tell(anstream::stdout(), text);
    }

    /// What a person should know beside the result; not part of it.
    pub(crate) fn note(self, text: &str) {
        write_lines(anstream::stderr(), text).ok();
    }

    /// Whether nobody takes results any more: what would go on telling ends here.
    pub(crate) fn is_over(self) -> bool {
        UNWRITTEN.get().is_some()
    }

    /// How to end. Whoever closed the pipe does not want the rest, and that is no error; a result that was lost is one.
    pub(crate) fn end(self, exit: Exit) -> Exit {
        match UNWRITTEN.get() {
            Some(why) if why.kind() != io::ErrorKind::BrokenPipe && exit == Exit::OK => {
                self.note(&format!("Error: the result could not be written: {why}"));
                Exit::FAILURE
            }
            _ => exit,
        }
    }

    /// A command that did not succeed.
    pub(crate) fn failure(self, failure: &Failure) {
        if self.json {
            print_envelope(&Envelope::<()>::failure(failure), true);
            return;
        }
        use owo_colors::OwoColorize;
        let text = failure.human.as_deref().map_or_else(|| format!("Error: {}", failure.message), str::to_owned);
        let mut text = match text.strip_prefix("Error:") {
            Some(rest) => format!("{}{rest}", "Error:".red().bold()),
            None => text,
        };
        for hint in &failure.hints {
            text.push_str(&format!("\n{} {hint}", "Hint:".cyan()));
        }
        write_lines(anstream::stderr(), &text).ok();
    }
}

/// The envelope; its members stand in this order.
#[derive(Serialize)]
struct Envelope<'a, T> {
    schema_version: u32,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<EnvelopeError<'a>>,
}

#[derive(Serialize)]
struct EnvelopeError<'a> {
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Map::is_empty")]
    details: Map<String, Value>,
}

impl<'a, T> Envelope<'a, T> {
    fn success(data: &'a T) -> Envelope<'a, T> {
        Envelope { schema_version: SCHEMA_VERSION, ok: true, data: Some(data), error: None }
    }

    fn failure(failure: &'a Failure) -> Envelope<'a, T> {
        let mut details = failure.details.clone();
        if !failure.hints.is_empty() {
            details.insert("suggestions".to_owned(), json!(failure.hints));
        }
        let error = EnvelopeError { code: &failure.code, message: &failure.message, details };
        Envelope { schema_version: SCHEMA_VERSION, ok: false, data: None, error: Some(error) }
    }
}

fn print_envelope(envelope: &impl Serialize, pretty: bool) {
    let text = if pretty { serde_json::to_string_pretty(envelope) } else { serde_json::to_string(envelope) };
    // Everything printed is strings, numbers and maps with text keys, which always become JSON.
    tell(io::stdout(), &text.unwrap_or_default());
}

/// Writes to standard output, as long as it takes anything.
fn tell(stream: impl Write, text: &str) {
    if let Err(why) = write_lines(stream, text) {
        UNWRITTEN.set(why).ok();
    }
}

fn write_lines(mut stream: impl Write, text: &str) -> io::Result<()> {
    let ending = if text.ends_with('\n') { "" } else { "\n" };
    write!(stream, "{text}{ending}").and_then(|()| stream.flush())
}
