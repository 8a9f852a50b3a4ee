//! Owns what the numbers depend on: the processor, the kernel and, above all, how long the disk takes to keep a promise.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;

use crate::load::new_histogram;

/// What a small commit writes to the journal's write-ahead log: one page and its frame header.
const WRITE_BYTES: usize = 4_096 + 24;
/// The file is written over again, as the log is after each checkpoint: that is faster than to make it longer.
const FILE_WRITES: u64 = 1_000;

/// How long `fdatasync` takes after a small write, for so long.
pub fn measure_sync(directory: &Path, time: Duration) -> Result<Histogram<u64>> {
    let path = directory.join("fdatasync.probe");
    let file = File::create(&path)?;
    let bytes = [7; WRITE_BYTES];
    for n in 0..FILE_WRITES {
        file.write_all_at(&bytes, n * WRITE_BYTES as u64)?;
    }
    file.sync_all()?;
    let mut taken = new_histogram();
    let started = Instant::now();
    for n in (0..FILE_WRITES).cycle() {
        let from = Instant::now();
        file.write_all_at(&bytes, n * WRITE_BYTES as u64)?;
        file.sync_data()?;
        taken.saturating_record(from.elapsed().as_nanos() as u64);
        if started.elapsed() > time {
            break;
        }
    }
    fs::remove_file(path)?;
    Ok(taken)
}

/// One line each: processor, memory, kernel, disk.
pub fn describe(scratch: &Path) -> Result<Vec<(String, String)>> {
    let cpu_info = fs::read_to_string("/proc/cpuinfo")?;
    let model =
        cpu_info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, name)| name);
    let cores = std::thread::available_parallelism()?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let memory = fs::read_to_string("/proc/meminfo")?;
    let kibibytes: u64 = memory.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let sync = measure_sync(scratch, Duration::from_secs(2))?;
    let us = |share: f64| sync.value_at_quantile(share) as f64 / 1_000.0;
    Ok([
        ("Processor", format!("{}, {cores} cores, shared by the server and the load", model.unwrap_or("unknown"))),
        ("Memory", format!("{:.1} GiB", kibibytes as f64 / 1_048_576.0)),
        ("Kernel", format!("Linux {}", kernel.trim())),
        ("Disk", format!("write of {WRITE_BYTES} bytes + fdatasync: p50 {:.0} µs, p99 {:.0} µs", us(0.5), us(0.99))),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into())
}
