//! `tenure serve`: the server. It says where it listens once it is ready, and ends cleanly on TERM and INT.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure_server::config::{Access, Config, load_tls};
use tenure_server::engine::clock::SystemClock;
use tenure_server::{Engine, ServeError, keys};
use tenure_store::{Options, Retain, Sqlite};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::offline;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::span;

/// Where the server listens if nothing else is said.
const DEFAULT_LISTEN: &str = "127.0.0.1:8000";

/// Run the server.
///
/// Without keys it listens on this machine only and believes every name. Any other address needs --keys, or --insecure
/// to accept anyone.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An address to listen on; may be repeated. Port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_LISTEN, env = "TENURE_LISTEN", value_delimiter = ',')]
    listen: Vec<SocketAddr>,
    /// Where everything is kept; made if it is not there
    #[arg(long, value_name = "DIR", default_value = offline::DEFAULT_DATA, env = "TENURE_DATA")]
    data: PathBuf,
    /// What keeps it: sqlite:DIR [default: SQLite in the data directory]
    #[arg(long, value_name = "URL", env = "TENURE_STORE", value_parser = store_dir, conflicts_with = "data")]
    store: Option<PathBuf>,
    /// A file with the API keys that may come in, made with 'tenure key new'
    #[arg(long, value_name = "FILE", env = "TENURE_KEYS")]
    keys: Option<PathBuf>,
    /// Let anyone in who reaches the server, and believe every name
    #[arg(long, conflicts_with = "keys")]
    insecure: bool,
    /// The certificate chain (PEM) for TLS
    #[arg(long, value_name = "FILE", requires = "tls_key", env = "TENURE_TLS_CERT")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", env = "TENURE_TLS_KEY")]
    tls_key: Option<PathBuf>,
    /// How long ended leases and events are kept: an age, a size, or both, such as 30d,10GB
    #[arg(long, value_name = "AGE,SIZE", default_value = "30d,10GB", value_parser = retain, env = "TENURE_RETAIN")]
    retain: Retain,
    /// How much longer than its response timeout a polled task is held: what heartbeats of workers may be late by
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = task_grace, env = "TENURE_TASK_GRACE")]
    task_grace: Duration,
}

pub(crate) fn run(args: &Args, output: Output) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::from(anyhow::Error::from(error)))?;
    let done = runtime.block_on(serve(args, output));
    // The engine has written everything; nothing that still runs needs to be waited for.
    runtime.shutdown_background();
    done
}

async fn serve(args: &Args, output: Output) -> Outcome {
    // First of all: a signal that comes while the ledger loads must not be missed.
    let told_to_stop = stop_signal()?;
    let config = config(args)?;
    let listeners = tenure_server::bind(&args.listen, &config).await.map_err(|error| cannot_serve(&error))?;
    let dir = args.store.clone().unwrap_or_else(|| args.data.clone());
    let options = Options { retain: args.retain, ..Options::default() };
    let open = tokio::task::spawn_blocking({
        let dir = dir.clone();
        move || open(&dir, options)
    });
    let engine = open.await.map_err(|error| Failure::from(anyhow::Error::from(error)))??;
    announce(&listeners, &dir, config.tls.is_some(), output)?;
    let served = tenure_server::serve(listeners, engine.clone(), config, told_to_stop).await;
    tracing::info!("stopping");
    engine.stop();
    let finished = engine.finished().await;
    served.map_err(|error| cannot_serve(&error))?;
    finished.map_err(|failure| Failure::new(Exit::FAILURE, "engine_failed", failure.to_string()))?;
    tracing::info!("stopped: everything is written");
    Ok(Exit::OK)
}

fn open(dir: &std::path::Path, options: Options) -> Result<Engine, Failure> {
    let store = Sqlite::open(dir, options).map_err(|error| offline::explain(&error))?;
    Engine::open(Box::new(store), Arc::new(SystemClock::new())).map_err(|error| {
        Failure::new(Exit::FAILURE, "cannot_open", error.to_string()).detail("data", dir.display().to_string())
    })
}

fn config(args: &Args) -> Result<Config, Failure> {
    let access = match &args.keys {
        Some(file) => {
            let keys = keys::load(file).map_err(|error| Failure::new(Exit::USAGE, "bad_keys", error.to_string()))?;
            Access::Keys(Arc::new(keys))
        }
        None if args.insecure => Access::Anyone,
        None => Access::Loopback,
    };
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => {
            let tls = load_tls(certificate, key);
            Some(tls.map_err(|error| Failure::new(Exit::USAGE, "bad_certificate", error.to_string()))?)
        }
        _ => None,
    };
    Ok(Config {
        access,
        tls,
        task_grace: args.task_grace,
        query_helper: std::env::current_exe().ok(),
        ..Config::default()
    })
}

/// The line that says the server is ready; whoever started it on port 0 reads the address here.
fn announce(listeners: &[TcpListener], dir: &std::path::Path, is_tls: bool, output: Output) -> Result<(), Failure> {
    let scheme = if is_tls { "https" } else { "http" };
    let addresses: std::io::Result<Vec<String>> =
        listeners.iter().map(|listener| Ok(format!("{scheme}://{}", listener.local_addr()?))).collect();
    let urls = addresses.map_err(|error| Failure::from(anyhow::Error::from(error)))?;
    let data = json!({ "urls": urls, "data": dir.display().to_string(), "pid": std::process::id() });
    output.line(&data, || format!("Tenure listens on {} and keeps its data in {}", urls.join(" "), dir.display()));
    Ok(())
}

/// Resolves on TERM or INT. The handlers stand when this returns.
fn stop_signal() -> Result<impl Future<Output = ()>, Failure> {
    let listen = |kind| signal(kind).map_err(|error| Failure::from(anyhow::Error::from(error)));
    let mut term = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

fn cannot_serve(error: &ServeError) -> Failure {
    let message = error.to_string();
    match error {
        ServeError::Exposed(_) => Failure::new(Exit::USAGE, "exposed", message),
        ServeError::Bind { .. } => Failure::new(Exit::CONFLICT, "cannot_listen", message)
            .hint("is another server running there? --listen takes another address"),
        ServeError::Engine(_) => Failure::new(Exit::FAILURE, "engine_failed", message),
    }
}

fn store_dir(url: &str) -> Result<PathBuf, String> {
    match url.strip_prefix("sqlite:") {
        Some(dir) if !dir.is_empty() => Ok(dir.into()),
        _ => Err("a store is written sqlite:DIR".to_owned()),
    }
}

/// `30d`, `10GB` or `30d,10GB`.
fn retain(text: &str) -> Result<Retain, String> {
    let (mut age_ms, mut size) = (None, None);
    for part in text.split(',') {
        let earlier = match (bytes(part), span::parse(part)) {
            (Some(bytes), _) => size.replace(bytes),
            (None, Ok(age)) => age_ms.replace(in_ms(age)),
            (None, Err(_)) => return Err(format!("{part:?} is neither an age such as 30d nor a size such as 10GB")),
        };
        if size == Some(0) || age_ms == Some(0) {
            return Err(format!(
                "{part:?} keeps nothing, and leases that have ended could not be told from unknown ones"
            ));
        }
        if earlier.is_some() {
            return Err("it has two ages or two sizes: give one of each".to_owned());
        }
    }
    let default = Retain::default();
    Ok(Retain { age_ms: age_ms.unwrap_or(default.age_ms), bytes: size.unwrap_or(default.bytes) })
}

/// Longer would only hide workers that are gone.
const TASK_GRACE_MAX: Duration = Duration::from_secs(60);

fn task_grace(text: &str) -> Result<Duration, String> {
    let grace = span::parse(text)?;
    if grace > TASK_GRACE_MAX {
        return Err(format!("it is at most {}", span::format(TASK_GRACE_MAX)));
    }
    Ok(grace)
}

fn in_ms(age: Duration) -> u64 {
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
}

/// `500MB`, `10GB`, `1TB`.
fn bytes(text: &str) -> Option<u64> {
    let units = [("KB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000), ("TB", 1_000_000_000_000_u64)];
    let (number, unit) = units.into_iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_is_an_age_a_size_or_both() {
        let day_ms = 86_400_000;
        let default = Retain::default();
        for (text, age_ms, size) in [
            ("30d,10GB", default.age_ms, default.bytes),
            ("7d", 7 * day_ms, default.bytes),
            ("500MB", default.age_ms, 500_000_000),
            ("1TB,12h", day_ms / 2, 1_000_000_000_000),
        ] {
            assert_eq!(retain(text), Ok(Retain { age_ms, bytes: size }), "{text}");
        }
        for text in [
            "",
            "30",
            "10G",
            "30d;10GB",
            "-1GB",
            "1.5GB",
            "99999999999999999999TB",
            "99999999TB",
            "0d",
            "0GB",
            "1d,0KB",
        ] {
            assert!(retain(text).is_err(), "{text}");
        }
        for text in ["1d,2d", "1d,1d", "1GB,2GB", "1d,1GB,2d"] {
            assert!(retain(text).is_err_and(|why| why.contains("two ages or two sizes")), "{text}");
        }
    }

    #[test]
    fn a_store_is_named_by_its_url() {
        assert_eq!(store_dir("sqlite:/var/lib/tenure"), Ok("/var/lib/tenure".into()));
        for text in ["", "sqlite:", "/var", "postgres://x"] {
            assert!(store_dir(text).is_err(), "{text}");
        }
    }
}
