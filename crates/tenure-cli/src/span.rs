//! Owns durations as people write and read them: `500ms`, `90s`, `15m`, `2h30m`, `1d`.

use std::time::{Duration, SystemTime};

const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("d", 24 * 3_600 * 1_000), ("h", 3_600 * 1_000), ("m", 60 * 1_000), ("s", 1_000)];

/// Reads `2h30m`: numbers with units, each at most once, the larger before the smaller.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a duration: write for example 500ms, 90s, 15m, 2h, 2h30m or 1d");
    let mut rest = text;
    let mut total_ms: u64 = 0;
    let mut smallest = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, behind) = rest.split_at(digits);
        let number: u64 = number.parse().map_err(|_| bad())?;
        let (unit, ms) = UNITS.into_iter().find(|(unit, _)| behind.starts_with(unit)).ok_or_else(bad)?;
        if ms >= smallest {
            return Err(bad());
        }
        smallest = ms;
        total_ms = number.checked_mul(ms).and_then(|ms| total_ms.checked_add(ms)).ok_or_else(bad)?;
        rest = behind.split_at(unit.len()).1;
    }
    if text.is_empty() { Err(bad()) } else { Ok(Duration::from_millis(total_ms)) }
}

/// The two largest units that matter: `2h30m`, `1m5s`, `42s`, `400ms`.
pub(crate) fn format(span: Duration) -> String {
    let seconds = span.as_secs();
    let two = |large: u64, large_unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large}{large_unit}"),
        _ => format!("{large}{large_unit}{small}{small_unit}"),
    };
    match seconds {
        0 => format!("{}ms", span.as_millis()),
        1..60 => format!("{seconds}s"),
        60..3_600 => two(seconds / 60, "m", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

/// `2026-11-15 10:00:00 UTC`.
pub(crate) fn utc(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map_or_else(|_| "?".to_owned(), |stamp| stamp.strftime("%F %T UTC").to_string())
}

/// `3m5s ago`.
pub(crate) fn ago(time: SystemTime, now: SystemTime) -> String {
    match now.duration_since(time) {
        Ok(past) if past >= Duration::from_secs(1) => format!("{} ago", format(past)),
        _ => "just now".to_owned(),
    }
}

/// `in 25s`, or `now` when it is past.
pub(crate) fn until(time: SystemTime, now: SystemTime) -> String {
    match time.duration_since(now) {
        Ok(left) if !left.is_zero() => format!("in {}", format(left)),
        _ => "now".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        let cases = [("500ms", 500), ("90s", 90_000), ("15m", 900_000), ("2h", 7_200_000), ("2h30m", 9_000_000)];
        for (text, ms) in cases.into_iter().chain([("1d", 86_400_000), ("1m500ms", 60_500), ("0s", 0)]) {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_an_example() {
        for text in ["", "5", "h", "5x", "-5s", "1.5h", " 5s", "5s ", "30m2h", "5s5s", "99999999999999999999s", "é"] {
            let error = parse(text).expect_err(text);
            assert!(error.contains("2h30m"), "{error}");
        }
        assert!(parse("18446744073709551615d").is_err());
    }

    #[test]
    fn durations_are_written_with_the_units_that_matter() {
        let cases = [(400, "400ms"), (42_900, "42s"), (65_000, "1m5s"), (120_000, "2m"), (9_000_000, "2h30m")];
        for (ms, text) in cases.into_iter().chain([(90_061_000, "1d1h")]) {
            assert_eq!(format(Duration::from_millis(ms)), text);
        }
    }
}
