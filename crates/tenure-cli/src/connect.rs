//! Owns reaching the server from the command line: where it is, in whose name, with which key.

use std::time::Duration;

use clap::Args;
use tenure::{Client, Holder};

use crate::failure::Failure;
use crate::refused;

/// How long a single command tries to reach the server.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

/// How to reach the server.
#[derive(Debug, Args)]
pub(crate) struct Connect {
    /// Where the server is
    #[arg(long, global = true, env = "TENURE_URL", default_value = tenure::DEFAULT_URL, value_name = "URL")]
    url: String,

    /// In whose name to act [default: you@host, for 'run' you@host:pid; with an API key, the only name it may act under,
    /// or an administrator's own]
    #[arg(long, global = true, env = "TENURE_HOLDER", value_name = "NAME", value_parser = holder)]
    holder: Option<String>,

    /// A file with certificates (PEM) to trust beside those of the machine
    #[arg(long, global = true, env = "TENURE_CA", value_name = "FILE")]
    ca: Option<std::path::PathBuf>,
}

impl Connect {
    /// A client in the name that was given, or in this one. The API key comes from `TENURE_API_KEY`: on a command line
    /// every other user of the machine could read it.
    pub(crate) fn client(&self, default_holder: String, patience: Duration) -> Result<Client, Failure> {
        let key = std::env::var("TENURE_API_KEY").ok().filter(|key| !key.is_empty());
        // A key says which names it may use, and the server knows the name if there is only one.
        let default_holder = key.is_none().then_some(default_holder);
        let mut builder = Client::builder().url(&self.url).patience(patience);
        if let Some(holder) = self.holder.clone().or(default_holder) {
            builder = builder.holder(holder);
        }
        if let Some(key) = key {
            builder = builder.api_key(key);
        }
        if let Some(file) = &self.ca {
            let pem = std::fs::read(file)
                .map_err(|error| Failure::usage(format!("the CA file {} cannot be read: {error}", file.display())))?;
            builder = builder.ca_pem(pem);
        }
        builder.build().map_err(|error| refused::explain(&error))
    }
}

/// A name that the server would refuse is refused here. An empty one is a mistake of a script, not a wish for another name.
fn holder(text: &str) -> Result<String, String> {
    Holder::parse(text).map(|holder| holder.to_string()).map_err(|why| why.to_string())
}

/// `user@host`: the same for every command of this user, so that one command can renew what another acquired.
pub(crate) fn user_at_host() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten().map(|user| user.name);
    let user = user.unwrap_or_else(|| format!("uid-{}", nix::unistd::geteuid()));
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    format!("{user}@{}", host.unwrap_or_else(|| "localhost".to_owned()))
}

/// `user@host:pid`: this process and no other.
pub(crate) fn this_process() -> String {
    format!("{}:{}", user_at_host(), std::process::id())
}
