//! Owns waiting for a time: `duration`, as people write it, or `until`, a date in UTC or with an offset.

use serde_json::Value;

use crate::Timestamp;
use crate::id::TaskId;
use crate::ledger::{Ledger, Turn};
use crate::task::to_value;

impl Ledger {
    pub(crate) fn begin_wait(&mut self, turn: &mut Turn<'_>, id: TaskId) {
        let Some(task) = self.tasks.all.get(&id) else { return };
        let input = to_value(&task.input);
        let text = |field: &str| match input.get(field) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
            Some(other) => Some(other.to_string()),
        };
        let until = match (text("duration").as_deref(), text("until").as_deref()) {
            (None, None) => None,
            (Some(_), Some(_)) => return self.fail(turn, id, "a wait has a duration or an until, not both"),
            (Some(text), None) => match duration_ms(text) {
                Some(ms) => Some(turn.now().plus_ms(ms)),
                None => return self.fail(turn, id, format!("not a duration: {text}; write it like 2 days 3h 4m 5s")),
            },
            (None, Some(text)) => match moment(text) {
                Some(at) => Some(at),
                None => {
                    let how = "write it like 2026-12-31, 2026-12-31 23:59 or 2026-12-31 23:59 GMT+01:00";
                    return self.fail(turn, id, format!("not a date: {text}; {how}"));
                }
            },
        };
        if let (Some(until), Some(task)) = (until, self.tasks.all.get_mut(&id)) {
            task.extra_mut().until = Some(until);
        }
        self.watch_task(id);
    }
}

/// `1 day 2 hours 3 min 4s` in milliseconds.
fn duration_ms(text: &str) -> Option<u64> {
    let mut total = 0u64;
    let mut last = usize::MAX;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest.get(..digits)?.parse().ok()?;
        let word = rest.get(digits..)?.trim_start();
        let end = word.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(word.len());
        let (order, ms) = unit(&word.get(..end)?.to_ascii_lowercase())?;
        // Each part once, the larger before the smaller.
        if order >= last {
            return None;
        }
        last = order;
        total = total.checked_add(number.checked_mul(ms)?)?;
        rest = word.get(end..)?.trim_start();
    }
    (last != usize::MAX).then_some(total)
}

fn unit(word: &str) -> Option<(usize, u64)> {
    Some(match word {
        "d" | "day" | "days" => (3, 86_400_000),
        "h" | "hr" | "hrs" | "hour" | "hours" => (2, 3_600_000),
        "m" | "min" | "mins" | "minute" | "minutes" => (1, 60_000),
        "s" | "sec" | "secs" | "second" | "seconds" => (0, 1_000),
        _ => return None,
    })
}

/// `yyyy-MM-dd[ HH:mm[ zone]]`, where a zone is UTC, GMT, Z or an offset.
fn moment(text: &str) -> Option<Timestamp> {
    let mut parts = text.split_whitespace();
    let days = days_since_1970(parts.next()?)?;
    let minutes = parts.next().map_or(Some(0), minutes_of)?;
    let offset = parts.next().map_or(Some(0), offset_minutes)?;
    if parts.next().is_some() {
        return None;
    }
    let minutes = days.checked_mul(1_440)?.checked_add(minutes)?.checked_sub(offset)?;
    Some(Timestamp::from_unix_ms(u64::try_from(minutes).ok()?.checked_mul(60_000)?))
}

fn days_since_1970(date: &str) -> Option<i64> {
    let mut parts = date.splitn(3, '-');
    let mut number = || parts.next()?.parse::<i64>().ok();
    let (year, month, day) = (number()?, number()?, number()?);
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let length = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) || !(1970..=9999).contains(&year) {
        return None;
    }
    // Years begin in March, so that the leap day is the last of its year.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
}

fn minutes_of(clock: &str) -> Option<i64> {
    let (hours, minutes) = clock.split_once(':')?;
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    ((0..24).contains(&hours) && (0..60).contains(&minutes)).then_some(hours * 60 + minutes)
}

fn offset_minutes(zone: &str) -> Option<i64> {
    let offset = zone.trim_start_matches("GMT").trim_start_matches("UTC");
    if offset.is_empty() || offset == "Z" {
        return Some(0);
    }
    let (sign, clock) = match (offset.strip_prefix('+'), offset.strip_prefix('-')) {
        (Some(clock), _) => (1, clock),
        (_, Some(clock)) => (-1, clock),
        _ => return None,
    };
    Some(sign * minutes_of(clock)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_its_parts_once_and_in_order() {
        for (text, seconds) in [
            ("5s", 5),
            ("2 days 3h 4 min 5 seconds", 2 * 86_400 + 3 * 3_600 + 4 * 60 + 5),
            ("1h30m", 5_400),
            ("10 Minutes", 600),
        ] {
            assert_eq!(duration_ms(text), Some(seconds * 1_000), "{text}");
        }
        for text in ["", "5", "s", "5x", "5s 5s", "5s 1h", "99999999999999999999s", "-5s"] {
            assert_eq!(duration_ms(text), None, "{text}");
        }
    }

    #[test]
    fn a_date_is_in_utc_unless_it_says_otherwise() {
        for (text, unix_s) in [
            ("1970-01-01", 0),
            ("2000-02-29 12:30", 951_827_400),
            ("2026-12-31 23:59 UTC", 1_798_761_540),
            ("2026-12-31 23:59 GMT+01:00", 1_798_757_940),
            ("2026-12-31 23:59 -02:30", 1_798_770_540),
        ] {
            assert_eq!(moment(text), Some(Timestamp::from_unix_ms(unix_s * 1_000)), "{text}");
        }
        for text in
            ["", "tomorrow", "2026-13-01", "2026-02-29", "2026-01-01 25:00", "2026-01-01 10:00 Mars", "1960-01-01"]
        {
            assert_eq!(moment(text), None, "{text}");
        }
    }
}
