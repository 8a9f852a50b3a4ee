//! What one idle guard costs: memory, and no thread. A target of its own, so that nothing else moves the numbers.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

#[path = "it/fake.rs"]
#[expect(dead_code, reason = "the other tests use the rest")]
mod fake;

use fake::{Fake, Reply, grant};
use tenure::Acquire;

const GUARDS: u64 = 5_000;
const BYTES_PER_GUARD_MAX: u64 = 2_048;

fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn an_idle_guard_costs_at_most_two_kibibytes_and_no_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let fake = Fake::start();
        let mut number = 0;
        fake.always("POST /v1/leases", move |_| {
            number += 1;
            Reply::Json(201, grant(number, 3_600_000))
        });
        let client = fake.client();
        // Everything that is there once, and what the first requests leave behind.
        let mut guards = Vec::with_capacity(2 * GUARDS as usize);
        for _ in 0..GUARDS {
            guards.push(client.acquire(Acquire::one("x:a")).await.unwrap());
        }
        fake.forget();
        let (memory, threads) = (status("VmRSS"), status("Threads"));
        for _ in 0..GUARDS {
            guards.push(client.acquire(Acquire::one("x:a")).await.unwrap());
        }
        fake.forget();
        let grown = (status("VmRSS").saturating_sub(memory)) * 1_024 / GUARDS;
        assert!(grown <= BYTES_PER_GUARD_MAX, "{grown} bytes a guard");
        assert_eq!(status("Threads"), threads);
        println!("one idle guard: {grown} bytes");
    });
}
