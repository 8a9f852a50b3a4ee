//! Owns how results look: tables that read the same on a terminal and as Markdown, and each aim with what came of it.

use std::fmt::{self, Display, Formatter, Write};
use std::time::Duration;

/// The results of one part.
#[derive(Default)]
pub struct Section {
    pub title: &'static str,
    pub notes: Vec<String>,
    pub tables: Vec<Table>,
    pub aims: Vec<Aim>,
}

/// Rows under a head.
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(head: &[&str]) -> Table {
        Table { head: head.iter().map(|cell| (*cell).to_owned()).collect(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: &[&dyn Display]) {
        self.rows.push(cells.iter().map(ToString::to_string).collect());
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let all = || std::iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| all().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..self.head.len()).map(|column| width(column).unwrap_or(0)).collect();
        for (n, row) in all().enumerate() {
            for (column, width) in widths.iter().enumerate() {
                let cell = row.get(column).map_or("", String::as_str);
                // Names to the left, numbers to the right.
                if column == 0 { write!(f, "| {cell:width$} ")? } else { write!(f, "| {cell:>width$} ")? }
            }
            f.write_str("|\n")?;
            if n == 0 {
                for (column, width) in widths.iter().enumerate() {
                    let line = "-".repeat(*width);
                    if column == 0 { write!(f, "| {line} ")? } else { write!(f, "| {line}:")? }
                }
                f.write_str("|\n")?;
            }
        }
        Ok(())
    }
}

/// How a number is written.
#[derive(Debug, Clone, Copy)]
pub enum Unit {
    Times,
    Percent,
    Bytes,
    Seconds,
    Milliseconds,
    Count,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Unit::Times => format!("{value:.2}×"),
            Unit::Percent => format!("{:.0} %", value * 100.0),
            Unit::Bytes => format!("{value:.0} B"),
            Unit::Seconds => format!("{value:.1} s"),
            Unit::Milliseconds => format!("{value:.1} ms"),
            Unit::Count => thousands(value),
        }
    }
}

/// Which way is better.
#[derive(Debug, Clone, Copy)]
enum Better {
    More,
    Less,
}

/// Something that should be reached, and whether it was.
pub struct Aim {
    what: String,
    value: f64,
    unit: Unit,
    better: Better,
    floor: f64,
    goal: f64,
}

impl Aim {
    pub fn at_least(what: impl Into<String>, value: f64, unit: Unit, floor: f64) -> Aim {
        Aim { what: what.into(), value, unit, better: Better::More, floor, goal: floor }
    }

    pub fn at_most(what: impl Into<String>, value: f64, unit: Unit, floor: f64) -> Aim {
        Aim { what: what.into(), value, unit, better: Better::Less, floor, goal: floor }
    }

    /// What is wished for beyond what is needed.
    #[must_use]
    pub fn goal(mut self, goal: f64) -> Aim {
        self.goal = goal;
        self
    }

    fn reaches(&self, bound: f64) -> bool {
        match self.better {
            Better::More => self.value >= bound,
            Better::Less => self.value <= bound,
        }
    }

    fn verdict(&self) -> &'static str {
        match (self.reaches(self.floor), self.reaches(self.goal)) {
            (_, true) => "met",
            (true, false) => "needed met, aim missed",
            (false, false) => "**missed**",
        }
    }

    fn bounds(&self) -> String {
        let sign = match self.better {
            Better::More => "≥",
            Better::Less => "≤",
        };
        let floor = format!("{sign} {}", self.unit.show(self.floor));
        if self.goal == self.floor { floor } else { format!("{floor} (aim {})", self.unit.show(self.goal)) }
    }
}

impl Display for Section {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "## {}\n", self.title)?;
        for note in &self.notes {
            writeln!(f, "{note}\n")?;
        }
        for table in &self.tables {
            writeln!(f, "{table}")?;
        }
        if !self.aims.is_empty() {
            let mut table = Table::new(&["what", "measured", "needed", "result"]);
            for aim in &self.aims {
                table.row(&[&aim.what, &aim.unit.show(aim.value), &aim.bounds(), &aim.verdict()]);
            }
            writeln!(f, "{table}")?;
        }
        Ok(())
    }
}

/// The whole report.
pub fn document(machine: &[(String, String)], command: &str, sections: &[Section]) -> String {
    let mut text = String::from("# Benchmarks\n\n");
    let mut table = Table::new(&["", ""]);
    table.row(&[&"Date", &jiff::Zoned::now().date()]);
    for (name, value) in machine {
        table.row(&[name, value]);
    }
    table.row(&[&"Command", &format!("`{command}`")]);
    // Writing to a string does not fail.
    let _ = write!(text, "{table}\n{READING}\n\n");
    for section in sections {
        let _ = write!(text, "{section}");
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

const READING: &str =
    "Ratios are what counts: both sides were measured in the same run, in turns, and the median of the turns is
shown. The absolute numbers belong to this machine, on which the load and the servers share the processor.";

/// The middle of some numbers.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle.saturating_sub(1)), values.get(middle)) {
        (Some(below), Some(above)) if values.len().is_multiple_of(2) => f64::midpoint(*below, *above),
        (_, Some(value)) => *value,
        _ => f64::NAN,
    }
}

/// 1234567.8 as 1,234,568.
pub fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A duration in microseconds or milliseconds, whichever reads better.
pub fn short(duration: Duration) -> String {
    let us = duration.as_secs_f64() * 1e6;
    match us {
        ..1_000.0 => format!("{us:.0} µs"),
        ..100_000.0 => format!("{:.2} ms", us / 1e3),
        _ => format!("{:.0} ms", us / 1e3),
    }
}

/// Tells the person who waits what is being done.
#[expect(clippy::print_stderr, reason = "the report goes to standard output, this does not belong in it")]
pub fn progress(text: impl Display) {
    eprintln!("· {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_says_whether_what_is_needed_and_what_is_wished_for_was_reached() {
        let verdict = |value| Aim::at_least("x", value, Unit::Percent, 0.7).goal(0.85).verdict();
        assert_eq!([verdict(0.69), verdict(0.7), verdict(0.85)], ["**missed**", "needed met, aim missed", "met"]);
        assert_eq!(Aim::at_most("x", 1.5, Unit::Times, 1.5).verdict(), "met");
        assert_eq!(Aim::at_most("x", 1.51, Unit::Times, 1.5).verdict(), "**missed**");
    }

    #[test]
    fn an_aim_without_a_value_is_missed() {
        assert_eq!(Aim::at_least("x", f64::NAN, Unit::Times, 1.0).verdict(), "**missed**");
        assert_eq!(Aim::at_most("x", f64::NAN, Unit::Times, 1.0).verdict(), "**missed**");
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median([]).is_nan());
    }

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!([thousands(0.4), thousands(999.6), thousands(1_234_567.8)], ["0", "1,000", "1,234,568"]);
    }
}
