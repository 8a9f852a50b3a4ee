//! Owns noticing that a client has gone while its request waits.
//!
//! hyper looks for the end of a connection only while it has read nothing beyond the request: one more byte (the next request, a
//! line break) hides the end until there is an answer to write. So whoever waits long watches the socket too.

use std::future::pending;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// Bytes that nobody reads make a socket ready all the time, so its end is looked for this often.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// The client of the connection that this task serves.
    static PEER: Peer;
}

/// A client, as its socket knows it.
#[derive(Clone)]
pub(super) struct Peer(Arc<OwnedWriteHalf>);

impl Peer {
    /// Reading is left to one alone: what it reads tells the runtime whether there is more, and saves a question to the system.
    pub(super) fn new(stream: TcpStream) -> (OwnedReadHalf, Peer) {
        let (reads, writes) = stream.into_split();
        (reads, Peer(Arc::new(writes)))
    }

    pub(super) fn socket(&self) -> &TcpStream {
        (*self.0).as_ref()
    }

    /// Serves a connection, during which [`gone`] knows whose it is.
    pub(super) async fn attended(self, connection: impl Future<Output = ()>) {
        PEER.scope(self, connection).await;
    }

    async fn gone(&self) {
        // An error means that the runtime ends.
        while let Ok(ready) = self.socket().ready(Interest::READABLE).await
            && !ready.is_read_closed()
        {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

/// Comes back when the client whose request this task answers has gone, or will send no more, which hyper takes for the same.
/// The connection is closed then: an answer reaches nobody.
pub(crate) async fn gone() {
    let Ok(peer) = PEER.try_with(Peer::clone) else { return pending().await };
    peer.gone().await;
    SockRef::from(peer.socket()).shutdown(Shutdown::Both).ok();
}
