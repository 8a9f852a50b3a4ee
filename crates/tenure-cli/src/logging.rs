//! Owns the program's logs: on standard error, as text or JSON, filtered by `TENURE_LOG`.

use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging. `TENURE_LOG` is a filter such as `debug` or `tenure_server=trace,info`; without it, `default` holds.
pub(crate) fn start(format: LogFormat, default: &str) -> Result<(), Failure> {
    let filter = match std::env::var("TENURE_LOG") {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(&text)
            .map_err(|error| Failure::usage(format!("TENURE_LOG={text:?} is not a log filter: {error}")))?,
        _ => EnvFilter::new(default),
    };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            lines.with_ansi(anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never).init()
        }
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
    Ok(())
}
