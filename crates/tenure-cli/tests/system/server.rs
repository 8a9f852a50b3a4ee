//! A server of its own for each test: the real binary on a free port, killed when the test ends.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::http::Http;

pub struct Server {
    child: Child,
    pub address: SocketAddr,
}

impl Server {
    /// Starts a server on this data directory and waits until it says that it is ready.
    pub fn start(data: &Path) -> Server {
        Server::spawn(serve_command(data)).expect("the server starts")
    }

    /// The same from a command that ends in `tenure serve`; nothing if it ends before it is ready.
    pub fn spawn(mut command: Command) -> Option<Server> {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary runs");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| ready(&line));
        // Whatever it says later is not read; a full pipe must not stop it.
        std::thread::spawn(move || lines.for_each(drop));
        match address {
            Some(address) => Some(Server { child, address }),
            None => {
                child.wait().expect("the server ends");
                None
            }
        }
    }

    pub fn connect(&self) -> Http {
        Http::connect(self.address).expect("the server answers")
    }

    /// No chance to say goodbye.
    pub fn kill(mut self) {
        self.child.kill().expect("it was running");
        self.child.wait().expect("it ends");
    }

    /// Waits for it to end by itself.
    pub fn wait(mut self) -> ExitStatus {
        self.child.wait().expect("it ends")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn serve_command(data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).stderr(Stdio::null());
    command
}

fn ready(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("http://")?;
    rest.split([' ', '/', '"', ',']).next()?.parse().ok()
}
