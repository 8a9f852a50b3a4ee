//! A disk that takes no more: the server says so, answers nobody falsely, and goes on when there is room again.

use std::process::{Command, Stdio};

use crate::audit::History;
use crate::crash::{Told, load, rounds, verify};
use crate::server::{Server, serve_command};

/// The server with a limit on the size of each of its files, in KiB: a write beyond it fails as on a full disk.
fn limited(data: &std::path::Path, kib: u64) -> Command {
    let serve = serve_command(data);
    let mut command = Command::new("bash");
    // The signal is ignored, so that the write fails instead of the process.
    command.args(["-c", &format!("trap '' XFSZ; ulimit -f {kib}; exec \"$0\" \"$@\"")]);
    command.arg(serve.get_program()).args(serve.get_args()).stderr(Stdio::null());
    command
}

#[test]
fn a_server_whose_disk_is_full_stops_and_nothing_it_said_is_lost() {
    let mut failed = 0;
    for round in 0..rounds(6) {
        let data = tempfile::tempdir().expect("a directory");
        let mut history = History::default();
        let mut last_token = 0;
        let Some(server) = Server::spawn(limited(data.path(), 300 + 150 * round)) else { continue };
        let address = server.address;
        let clients: Vec<_> = (0..4).map(|client| std::thread::spawn(move || load(address, client, round))).collect();
        let told: Vec<Told> = clients.into_iter().map(|client| client.join().expect("a client")).collect();
        // It ends by itself: a state that may not be durable answers nobody.
        assert!(!server.wait().success(), "a server that cannot write must not end as if all were well");
        failed += 1;
        verify(data.path(), &mut history, &told, &mut last_token);
    }
    assert!(failed > 0, "no server got as far as a full disk");
}
