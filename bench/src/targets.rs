//! Owns the servers under test. Each client is as lean as the others: a socket, one buffer, no library between, so that what is
//! compared is servers and not client libraries.

pub mod etcd;
pub mod library;
pub mod openintent;
pub mod postgres;
pub mod redis;
pub mod tenure;

use crate::load::{self, Measured, Pace, Target, Workload};
use crate::process::Server;

/// The ttl of every lock in a workload, in seconds: longer than any turn.
pub const TTL_SECONDS: u64 = 60;

/// A server that takes part in a comparison.
pub trait Contender {
    fn name(&self) -> &'static str;
    /// What a reader must know to judge its numbers.
    fn note(&self) -> &'static str;
    fn server(&self) -> &Server;
    fn run(&self, connections: usize, workload: &Workload, pace: Pace) -> anyhow::Result<Measured>;
}

/// What a target says about itself; the rest of a contender follows from it.
pub trait Described: Target {
    const NAME: &'static str;
    const NOTE: &'static str;
    fn server(&self) -> &Server;
}

impl<T: Described> Contender for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn note(&self) -> &'static str {
        T::NOTE
    }

    fn server(&self) -> &Server {
        Described::server(self)
    }

    fn run(&self, connections: usize, workload: &Workload, pace: Pace) -> anyhow::Result<Measured> {
        load::run(self, connections, workload, pace)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::load::Op;

    fn scratch() -> tempfile::TempDir {
        let scratch = tempfile::tempdir_in("/var/tmp").expect("a directory");
        std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).expect("permissions");
        scratch
    }

    fn works<T: Contender>(start: impl FnOnce(&Path) -> anyhow::Result<Option<T>>) {
        let scratch = scratch();
        let Some(target) = start(scratch.path()).expect("a start") else {
            return eprintln!("skipped: it is not installed");
        };
        let pace = Pace { warm_up: Duration::ZERO, measure: Duration::from_millis(100) };
        for workload in [Workload::CHURN, Workload::FLEET] {
            let measured = target.run(3, &workload, pace).expect("right answers");
            assert!(measured.rate() > 0.0, "{} does nothing", target.name());
        }
        // The second release of each client finds nothing, and that must not count as work.
        let wrong = Workload { name: "wrong", before: &[Op::Acquire], cycle: &[Op::Release], after: &[] };
        assert!(target.run(3, &wrong, pace).is_err(), "{} does not look at answers", target.name());
    }

    #[test]
    fn redis_takes_renews_and_releases() {
        works(redis::Redis::start);
    }

    #[test]
    fn postgres_takes_renews_and_releases() {
        works(postgres::Postgres::start);
    }

    #[test]
    fn etcd_takes_renews_and_releases() {
        works(etcd::Etcd::start);
    }
}
