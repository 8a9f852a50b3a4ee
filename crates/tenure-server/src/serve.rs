//! Owns connections: listening, TLS, bounds on what each may cost, and an orderly end.
//!
//! Told to stop, the server takes no more connections, ends streams and waits, lets requests in flight finish and comes back.
//! A client that is slow to send or to read is cut: its request is its own to repeat.

mod head;
pub(crate) mod peer;
mod stall;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use self::head::Bounded;
use self::stall::Watched;
use crate::config::{Config, Exposed};
use crate::engine::{Engine, Failure};
use crate::http::{App, Parts};
use crate::router::router;

/// How long to pause when the system has no more file descriptors: others must close some first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A machine that vanished while its client waits in line says nothing: it is asked after so long …
const PROBE_AFTER: Duration = Duration::from_secs(30);
/// … again and again …
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// … and given up, with its place in line, after so many questions.
const PROBES_UNANSWERED_MAX: u32 = 3;

/// Said to a connection that is one too many, before it is closed.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n\
connection: close\r\ncontent-length: 193\r\n\r\n\
{\"type\":\"urn:tenure:error:overloaded\",\"title\":\"The server has too much to do\",\"status\":503,\
\"detail\":\"too many connections are open; try again shortly\",\"code\":\"overloaded\",\"retry_after_ms\":1000}";

/// Why a server does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is open to people who cannot be told apart.
    #[error(transparent)]
    Exposed(#[from] Exposed),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The engine gave up; the process is to end.
    #[error(transparent)]
    Engine(Arc<Failure>),
}

/// Listens on addresses, if that is safe without more keys than there are.
pub async fn bind(addresses: &[SocketAddr], config: &Config) -> Result<Vec<TcpListener>, ServeError> {
    let mut listeners = Vec::with_capacity(addresses.len());
    for address in addresses {
        config.access.check(*address)?;
        let bound = TcpListener::bind(address).await;
        listeners.push(bound.map_err(|source| ServeError::Bind { address: *address, source })?);
    }
    Ok(listeners)
}

/// Answers connections until `shutdown` comes back or the engine gives up. The engine is left to its owner to stop.
pub async fn serve(
    listeners: Vec<TcpListener>,
    engine: Engine,
    config: Config,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let (close, closing) = watch::channel(false);
    let connections_max = config.connections_max;
    let grace = config.shutdown_time_max;
    let permits = Arc::new(Semaphore::new(connections_max));
    let app = App(Arc::new(Parts { engine: engine.clone(), config, closing }));
    tokio::spawn(crate::http::conductor::evaluate::run(app.clone()));
    let door = Door { router: router(app.clone()), app, permits: Arc::clone(&permits) };
    for listener in listeners {
        tokio::spawn(door.clone().listen(listener));
    }
    drop(door);
    let end = tokio::select! {
        () = shutdown => Ok(()),
        end = engine.finished() => end.map_err(ServeError::Engine),
    };
    close.send_replace(true);
    // Every connection gives its permit back when it is closed.
    let all = u32::try_from(connections_max).unwrap_or(u32::MAX);
    if tokio::time::timeout(grace, permits.acquire_many(all)).await.is_err() {
        tracing::warn!("connections were cut: their requests took too long to finish");
    }
    end
}

/// What a connection is served with.
#[derive(Clone)]
struct Door {
    router: Router,
    app: App,
    permits: Arc<Semaphore>,
}

impl Door {
    async fn listen(self, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.app.closing() => return,
            };
            match accepted {
                Ok((stream, _)) => self.admit(stream),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn admit(&self, stream: TcpStream) {
        match Arc::clone(&self.permits).try_acquire_owned() {
            Ok(permit) => {
                tokio::spawn(self.clone().attend(stream, permit));
            }
            Err(_) => {
                self.app.engine().metrics().refused("overloaded");
                tokio::spawn(turn_away(stream, self.app.0.config.tls.is_some()));
            }
        }
    }

    async fn attend(self, stream: TcpStream, permit: OwnedSemaphorePermit) {
        prepare(&stream);
        let config = &self.app.0.config;
        let stream = Watched::new(stream, config.stall_max);
        let peer = stream.peer();
        let present = self.app.engine().metrics().connections.clone();
        present.inc();
        match &config.tls {
            None => peer.attended(self.converse(stream)).await,
            Some(tls) => {
                let handshake = TlsAcceptor::from(Arc::clone(tls)).accept(stream);
                match tokio::time::timeout(config.body_time_max, handshake).await {
                    Ok(Ok(stream)) => peer.attended(self.converse(stream)).await,
                    Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                    Err(_) => tracing::debug!("a TLS handshake took too long"),
                }
            }
        }
        present.dec();
        drop(permit);
    }

    async fn converse(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let config = &self.app.0.config;
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(config.idle_max);
        let service = Bounded::new(self.router.clone(), &mut http);
        let connection = http.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.app.closing() => {
                connection.as_mut().graceful_shutdown();
                match tokio::time::timeout(config.shutdown_time_max, connection).await {
                    Ok(ended) => ended,
                    Err(_) => return,
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection broke");
        }
    }
}

/// What a connection has to be told. One that does not take it works all the same.
fn prepare(stream: &TcpStream) {
    // Answers are small and complete: waiting to fill a packet only delays them.
    stream.set_nodelay(true).ok();
    let probes =
        TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_INTERVAL).with_retries(PROBES_UNANSWERED_MAX);
    SockRef::from(stream).set_tcp_keepalive(&probes).ok();
}

async fn turn_away(mut stream: TcpStream, is_tls: bool) {
    // Whoever expects TLS could not read it.
    if !is_tls {
        let said = tokio::time::timeout(Duration::from_secs(1), stream.write_all(FULL)).await;
        tracing::debug!(?said, "a connection was turned away");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_machine_that_vanished_is_noticed_within_a_minute() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("an address"));
        let (_client, accepted) = tokio::join!(client, listener.accept());
        let (stream, _) = accepted.expect("a connection");
        prepare(&stream);
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().expect("an option"));
        let asked =
            socket.tcp_keepalive_interval().expect("seconds") * socket.tcp_keepalive_retries().expect("a number");
        assert_eq!(socket.tcp_keepalive_time().expect("seconds") + asked, Duration::from_secs(60));
    }

    #[test]
    fn the_answer_to_one_connection_too_many_is_as_long_as_it_says() {
        let text = std::str::from_utf8(FULL).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        serde_json::from_str::<serde_json::Value>(body).expect("JSON");
    }
}
