//! Owns the words for people: times, and texts that came from somebody else's ref.

/// `2024-01-15 11:30:00 UTC`.
pub(crate) fn utc(unix_ms: u64) -> String {
    let stamp = i64::try_from(unix_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    stamp.map_or_else(|| "beyond the calendar".to_owned(), |stamp| stamp.strftime("%Y-%m-%d %H:%M:%S UTC").to_string())
}

/// `25m`, `45s`, `1h5m`, `2d3h`: whole minutes from a minute on.
pub(crate) fn left(ms: u64) -> String {
    let seconds = ms / 1_000;
    let two = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{small_unit}"),
    };
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

/// Other people's texts must not move the cursor or turn the line around.
pub(crate) fn visible(text: &str) -> String {
    let hides = |c: char| {
        c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().take(1_024).map(|c| if hides(c) { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_guide_writes_them() {
        assert_eq!(utc(1_705_318_200_000), "2024-01-15 11:30:00 UTC");
        assert_eq!(utc(u64::MAX), "beyond the calendar");
        let cases = [(1_500_000, "25m"), (1_559_000, "25m"), (45_900, "45s"), (3_900_000, "1h5m"), (7_200_000, "2h")];
        for (ms, text) in cases.into_iter().chain([(183_600_000, "2d3h"), (0, "0s")]) {
            assert_eq!(left(ms), text);
        }
    }

    #[test]
    fn foreign_text_cannot_play_with_the_terminal() {
        assert_eq!(visible("a\u{1b}[2Jb\u{202e}c\n"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}");
    }
}
