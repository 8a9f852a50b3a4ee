//! Owns how a server is set up: who may come in, over what, and every bound on what a connection may cost.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tenure_core::limits::{
    HOLDER_BYTES_MAX, METADATA_BYTES_MAX, RENEWALS_PER_REQUEST_MAX, RESOURCE_BYTES_MAX, RESOURCES_PER_ACQUIRE_MAX,
};
use tenure_core::token::LEASE_ID_BYTES_MAX;

use crate::keys::Keys;

/// The largest body of a request: every acquire and renewal that keeps to the ledger's bounds fits, with room for blanks.
pub const BODY_BYTES_MAX: usize = 512 * 1_024;
/// The most open connections: agents keep one each, followers of events one more. Each costs a file descriptor.
pub const CONNECTIONS_MAX: usize = 16_384;
/// The longest head of a request: its address and its header fields. Sixteen times a holder, a key and a cursor together.
pub const HEAD_BYTES_MAX: usize = 16 * 1_024;
/// The most header fields of a request.
pub const HEADERS_MAX: usize = 64;
/// How long a connection may be silent between requests, and a request's head may take. Longer than a third of the ttls in
/// use, so that heartbeats reuse their connection.
pub const IDLE_MAX: Duration = Duration::from_secs(120);
/// How long the body of a request may take, and a TLS handshake.
pub const BODY_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a client may leave an answer unread.
pub const STALL_MAX: Duration = Duration::from_secs(30);
/// How long requests in flight may take after the server was told to stop.
pub const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(5);

/// How much longer than its response timeout a worker may be silent: what heartbeats of real workers are late by.
pub const TASK_GRACE: Duration = Duration::from_secs(1);

/// The most bytes that JSON takes for one byte of a text: `\u003c`, as some programs write `<`.
const ESCAPED_BYTES_MAX: usize = 6;
/// Quotes and a comma.
const LISTED_BYTES: usize = 3;
/// The largest body of an acquire: names written in the longest way, metadata as it is, and the fields around them.
const ACQUIRE_BYTES_MAX: usize = RESOURCES_PER_ACQUIRE_MAX * (RESOURCE_BYTES_MAX * ESCAPED_BYTES_MAX + LISTED_BYTES)
    + HOLDER_BYTES_MAX * ESCAPED_BYTES_MAX
    + METADATA_BYTES_MAX
    + 1_024;
/// The largest body of a renewal of many. Nobody escapes digits.
const RENEW_BYTES_MAX: usize = RENEWALS_PER_REQUEST_MAX * (LEASE_ID_BYTES_MAX + LISTED_BYTES) + 1_024;
const _: () = assert!(ACQUIRE_BYTES_MAX <= BODY_BYTES_MAX && RENEW_BYTES_MAX <= BODY_BYTES_MAX);

/// How a server is set up.
#[derive(Debug, Clone)]
pub struct Config {
    /// Who may come in.
    pub access: Access,
    /// The certificate, if connections are encrypted.
    pub tls: Option<Arc<ServerConfig>>,
    /// See [`BODY_BYTES_MAX`].
    pub body_bytes_max: usize,
    /// See [`CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// See [`IDLE_MAX`].
    pub idle_max: Duration,
    /// See [`BODY_TIME_MAX`].
    pub body_time_max: Duration,
    /// See [`STALL_MAX`].
    pub stall_max: Duration,
    /// See [`SHUTDOWN_TIME_MAX`].
    pub shutdown_time_max: Duration,
    /// See [`TASK_GRACE`].
    pub task_grace: Duration,
    /// The program that answers queries of workflows when it is started with `answer-query`: [`crate::query::answer`].
    pub query_helper: Option<PathBuf>,
}

impl Default for Config {
    /// Open on loopback, without TLS.
    fn default() -> Config {
        Config {
            access: Access::Loopback,
            tls: None,
            body_bytes_max: BODY_BYTES_MAX,
            connections_max: CONNECTIONS_MAX,
            idle_max: IDLE_MAX,
            body_time_max: BODY_TIME_MAX,
            stall_max: STALL_MAX,
            shutdown_time_max: SHUTDOWN_TIME_MAX,
            task_grace: TASK_GRACE,
            query_helper: None,
        }
    }
}

/// Who may come in.
#[derive(Debug, Clone, Default)]
pub enum Access {
    /// Whoever is on this machine; every name is believed.
    #[default]
    Loopback,
    /// Whoever reaches the server; every name is believed. Asked for by name (`--insecure`).
    Anyone,
    /// Who has one of these keys.
    Keys(Arc<Keys>),
}

/// An address that would let in people who cannot be told apart.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} can be reached from other machines and there are no keys: give --keys FILE (made with `tenure key new`), listen on 127.0.0.1, or accept anyone with --insecure"
)]
pub struct Exposed(pub SocketAddr);

impl Access {
    /// Whether it is safe to listen there.
    pub fn check(&self, address: SocketAddr) -> Result<(), Exposed> {
        match self {
            Access::Loopback if !address.ip().to_canonical().is_loopback() => Err(Exposed(address)),
            Access::Loopback | Access::Anyone | Access::Keys(_) => Ok(()),
        }
    }
}

/// A certificate that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read as PEM.
    #[error("{path} cannot be read as PEM: {source}")]
    Pem {
        /// Which.
        path: String,
        /// Why.
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate and key do not make a server.
    #[error("the certificate and its key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// Reads a certificate chain and its private key from PEM files.
pub fn load_tls(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let pem = |path: &Path| {
        let path = path.display().to_string();
        move |source| TlsError::Pem { path, source }
    };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect).map_err(pem(certificate))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(pem(key))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_keys_only_loopback_is_open_unless_asked_for() {
        for (address, is_safe) in [
            ("127.0.0.1:8000", true),
            ("127.8.9.1:80", true),
            ("[::1]:8000", true),
            ("[::ffff:127.0.0.1]:8000", true),
            ("0.0.0.0:8000", false),
            ("[::]:8000", false),
            ("192.168.0.1:8000", false),
        ] {
            let address: SocketAddr = address.parse().expect("an address");
            assert_eq!(Access::Loopback.check(address).is_ok(), is_safe, "{address}");
            assert_eq!(Access::Anyone.check(address), Ok(()));
            assert_eq!(Access::Keys(Arc::default()).check(address), Ok(()));
        }
    }
}
