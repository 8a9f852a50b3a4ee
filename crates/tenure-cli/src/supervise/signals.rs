//! Owns what a supervisor hears: signals for the command, the wish of a terminal to stop both, and news of children.

use std::io;

use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Why the supervisor was woken.
#[derive(Debug, Clone, Copy)]
pub(super) enum News {
    /// A signal that is meant for the command.
    Forward(Signal),
    /// Whoever is at the terminal wants both to stand still.
    Suspend,
    /// A child, or one that was left to us, has stopped or ended.
    Child,
}

const HEARD: [(Signal, News); 8] = [
    (Signal::SIGINT, News::Forward(Signal::SIGINT)),
    (Signal::SIGTERM, News::Forward(Signal::SIGTERM)),
    (Signal::SIGHUP, News::Forward(Signal::SIGHUP)),
    (Signal::SIGQUIT, News::Forward(Signal::SIGQUIT)),
    (Signal::SIGUSR1, News::Forward(Signal::SIGUSR1)),
    (Signal::SIGUSR2, News::Forward(Signal::SIGUSR2)),
    (Signal::SIGTSTP, News::Suspend),
    (Signal::SIGCHLD, News::Child),
];

/// All of them on one channel. What we were started to ignore (`nohup`, `&` in a script) stays ignored, by the command too;
/// only the end of children must be heard, or nobody could be told how the command ended.
pub(super) fn listen() -> io::Result<mpsc::Receiver<News>> {
    let ignored = ignored();
    let (sender, receiver) = mpsc::channel(HEARD.len());
    for (number, news) in HEARD {
        if number != Signal::SIGCHLD && ignored & (1 << (number as i32 - 1)) != 0 {
            continue;
        }
        let mut stream = signal(SignalKind::from_raw(number as i32))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                if sender.send(news).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(receiver)
}

/// The signals that this process ignores, a bit for each. Where the system does not tell, none.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
