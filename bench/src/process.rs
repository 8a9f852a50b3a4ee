//! Owns the servers under test as processes: started on loopback, watched, and always stopped, also when a part fails.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// How long a server may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often the state of a process is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running server.
pub struct Server {
    child: Child,
    name: String,
    log: std::path::PathBuf,
}

impl Server {
    /// Starts a server; what it says on stderr goes to a file beside its data.
    pub fn start(command: &mut Command, name: &str, scratch: &Path) -> Result<Server> {
        let log = scratch.join(format!("{name}.log"));
        let stderr = fs::OpenOptions::new().create(true).append(true).open(&log)?;
        command.stdin(Stdio::null()).stderr(stderr);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Server { child, name: name.to_owned(), log })
    }

    /// The standard output, if it was asked for and not taken yet.
    pub fn stdout(&mut self) -> Result<BufReader<ChildStdout>> {
        Ok(BufReader::new(self.child.stdout.take().context("standard output is not piped")?))
    }

    /// The first line that names an address.
    pub fn announced(&mut self) -> Result<SocketAddr> {
        let mut stdout = self.stdout()?;
        let mut line = String::new();
        while stdout.read_line(&mut line)? > 0 {
            if let Some(address) = address_in(&line) {
                // Whatever comes later must not fill the pipe and stop the server.
                std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
                return Ok(address);
            }
            line.clear();
        }
        bail!("{} ended before it listened: {}", self.name, self.last_words())
    }

    /// Waits until somebody listens there.
    pub fn wait_for(&mut self, address: SocketAddr) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            if self.child.try_wait()?.is_some() || Instant::now() > until {
                bail!("{} does not listen on {address}: {}", self.name, self.last_words());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Asks it to stop and waits until it has.
    pub fn stop(mut self) -> Result<()> {
        self.end(Signal::SIGTERM)
    }

    /// Ends it without a word.
    pub fn kill(mut self) -> Result<()> {
        self.end(Signal::SIGKILL)
    }

    fn end(&mut self, signal: Signal) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        kill(self.pid(), signal)?;
        let until = Instant::now() + PATIENCE;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > until {
                self.child.kill()?;
                self.child.wait()?;
                bail!("{} did not stop within {PATIENCE:?}", self.name);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Bytes of memory it holds.
    pub fn resident_bytes(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kibibytes * 1_024)
    }

    /// Processor time of it and everything it started.
    pub fn cpu(&self) -> Result<Duration> {
        let own = self.child.id();
        let all: Vec<ProcessTimes> = fs::read_dir("/proc")?
            .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok())
            .filter_map(|stat| ProcessTimes::parse(&stat))
            .collect();
        let mut family = vec![own];
        let mut ticks = 0;
        while let Some(id) = family.pop() {
            family.extend(all.iter().filter(|one| one.parent == id).map(|one| one.id));
            ticks += all.iter().filter(|one| one.id == id).map(|one| one.ticks).sum::<u64>();
        }
        let per_second = sysconf(SysconfVar::CLK_TCK)?.context("no clock tick")?.unsigned_abs();
        Ok(Duration::from_millis(ticks * 1_000 / per_second))
    }

    /// Waits until its background work is done, so that it is not charged to the next measurement.
    pub fn settle(&self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        let mut before = self.cpu()?;
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(250));
            let now = self.cpu()?;
            if now.saturating_sub(before) <= Duration::from_millis(10) {
                break;
            }
            before = now;
        }
        Ok(())
    }

    fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing can be done about an error here; the process ends with us at the latest.
        let _ = self.end(Signal::SIGTERM);
    }
}

struct ProcessTimes {
    id: u32,
    parent: u32,
    /// Of itself and of those it has waited for.
    ticks: u64,
}

impl ProcessTimes {
    /// Reads a line of `/proc/PID/stat`. The name in it may hold anything, also brackets.
    fn parse(stat: &str) -> Option<ProcessTimes> {
        let id = stat.split(' ').next()?.parse().ok()?;
        let rest: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let parent = rest.get(1)?.parse().ok()?;
        let ticks = rest.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
        Some(ProcessTimes { id, parent, ticks })
    }
}

/// The first address in a line of text.
fn address_in(line: &str) -> Option<SocketAddr> {
    line.split_whitespace().find_map(|word| {
        let word = word.trim_start_matches("http://").trim_end_matches(['/', ',', '.', ';']);
        word.parse().ok()
    })
}

/// A port that is free now.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Where a program is, if it is installed.
pub fn find_program(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_a_sentence() {
        let expected: SocketAddr = "127.0.0.1:8000".parse().expect("an address");
        assert_eq!(address_in("tenure listens on http://127.0.0.1:8000, data in ./x\n"), Some(expected));
        assert_eq!(address_in("listening 127.0.0.1:8000"), Some(expected));
        assert_eq!(address_in("loading 1000000 leases"), None);
    }

    #[test]
    fn processor_time_counts_waited_for_children_and_survives_odd_names() {
        let stat = "42 (a) b (c)) S 7 42 42 0 -1 4194560 1 0 0 0 10 20 3 4 20 0 1 0 5 6 7";
        let times = ProcessTimes::parse(stat).expect("a line");
        assert_eq!((times.id, times.parent, times.ticks), (42, 7, 37));
    }
}
