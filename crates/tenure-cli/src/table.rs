//! Owns tables for people: columns as wide as their widest cell, two blanks between them.

use owo_colors::OwoColorize;

/// A table; the first row is its head.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Table {
        Table { rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max().unwrap_or(0))
            .collect();
        let lines = self.rows.iter().enumerate().map(|(index, row)| {
            let line = line(row, &widths);
            if index == 0 { line.bold().to_string() } else { line }
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn line(row: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (cell, width_wanted) in row.iter().zip(widths) {
        line.push_str(cell);
        line.extend(std::iter::repeat_n(' ', width_wanted - width(cell) + 2));
    }
    line.trim_end().to_owned()
}

/// In characters: names are mostly narrow, and a table that is off by one column for the others is still a table.
fn width(cell: &str) -> usize {
    cell.chars().count()
}
