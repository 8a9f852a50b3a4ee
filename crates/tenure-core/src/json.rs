//! Owns writing the JSON that every grant and release needs: a lease, an event, and the answer about them. And what has to be
//! known of JSON that callers bring along: how deep it is, and its short form.
//!
//! serde_json looks through the name of every member for something to escape, which takes longer than the values. The names
//! here are constants without any such character. Everything else is as serde_json would write it, byte for byte: each type
//! written so has a test that compares the two.

use serde_json::value::RawValue;

/// A JSON object on its way into a buffer. A member without a value is left out.
pub struct Object<'a> {
    to: &'a mut Vec<u8>,
    /// What stands before the next member.
    separator: u8,
}

impl<'a> Object<'a> {
    /// Begins one.
    pub fn new(to: &'a mut Vec<u8>) -> Object<'a> {
        Object { to, separator: b'{' }
    }

    /// A member whose value is written by `write`. The name must need no escaping.
    #[inline]
    fn member(&mut self, name: &'static str, write: impl FnOnce(&mut Vec<u8>)) {
        self.to.extend_from_slice(&[self.separator, b'"']);
        self.separator = b',';
        self.to.extend_from_slice(name.as_bytes());
        self.to.extend_from_slice(b"\":");
        write(self.to);
    }

    /// A member that is a number.
    #[inline]
    pub fn number(&mut self, name: &'static str, value: impl Into<Option<u64>>) {
        if let Some(value) = value.into() {
            self.member(name, |to| number(to, value));
        }
    }

    /// A member that is a text.
    #[inline]
    pub fn text<'v>(&mut self, name: &'static str, value: impl Into<Option<&'v str>>) {
        if let Some(value) = value.into() {
            self.member(name, |to| text(to, |to| to.extend_from_slice(value.as_bytes())));
        }
    }

    /// A member that is one of a few words of ours.
    #[inline]
    pub fn word(&mut self, name: &'static str, value: impl Into<Option<&'static str>>) {
        self.plain(name, value, |value, to| to.extend_from_slice(value.as_bytes()));
    }

    /// A member that is a text in which nothing can need escaping, as an id or a time; appended by `write`.
    #[inline]
    pub fn plain<T>(&mut self, name: &'static str, value: impl Into<Option<T>>, write: impl FnOnce(T, &mut Vec<u8>)) {
        if let Some(value) = value.into() {
            self.member(name, |to| {
                to.push(b'"');
                write(value, to);
                to.push(b'"');
            });
        }
    }

    /// A member that is a list of texts, each appended by `write`.
    #[inline]
    pub fn texts<T>(&mut self, name: &'static str, values: &[T], write: impl Fn(&T, &mut Vec<u8>)) {
        self.member(name, |to| {
            to.push(b'[');
            for (at, value) in values.iter().enumerate() {
                if at > 0 {
                    to.push(b',');
                }
                text(to, |to| write(value, to));
            }
            to.push(b']');
        });
    }

    /// A member that is JSON already.
    #[inline]
    pub fn raw(&mut self, name: &'static str, json: Option<&RawValue>) {
        if let Some(json) = json {
            self.member(name, |to| to.extend_from_slice(json.get().as_bytes()));
        }
    }

    /// Ends it.
    pub fn end(self) {
        if self.separator == b'{' {
            self.to.push(b'{');
        }
        self.to.push(b'}');
    }
}

/// A number as JSON has it.
#[inline]
pub fn number(to: &mut Vec<u8>, value: u64) {
    to.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// A text as JSON has it; `write` appends it as it is. What needs escaping is rare and found afterwards.
#[inline]
fn text(to: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    to.push(b'"');
    let start = to.len();
    write(to);
    let needs_escape = |byte: &u8| *byte < b' ' || *byte == b'"' || *byte == b'\\';
    // All of it is looked at, without a way out in between: many bytes at once.
    if to.iter().skip(start).fold(false, |found, byte| found | needs_escape(byte)) {
        escape(to, start);
    }
    to.push(b'"');
}

#[cold]
fn escape(to: &mut Vec<u8>, start: usize) {
    let plain = to.split_off(start);
    let quoted = serde_json::to_string(&String::from_utf8_lossy(&plain)).unwrap_or_default();
    let escaped = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    to.extend_from_slice(escaped.unwrap_or_default().as_bytes());
}

/// How deep a JSON text is nested; what is no object and no list has the depth 0.
pub fn depth(json: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for (character, _) in characters(json).filter(|(_, in_text)| !in_text) {
        match character {
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// The same JSON text without the blanks between its parts. Everything else stays as it came: a number keeps its digits.
pub fn without_blanks(json: &str) -> String {
    let is_kept = |(character, in_text): &(char, bool)| *in_text || !character.is_ascii_whitespace();
    characters(json).filter(is_kept).map(|(character, _)| character).collect()
}

/// The characters of a JSON text, each with whether it stands inside a string.
fn characters(json: &str) -> impl Iterator<Item = (char, bool)> {
    let (mut in_text, mut is_escaped) = (false, false);
    json.chars().map(move |character| {
        let was_in_text = in_text;
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => in_text = !in_text,
            _ => {}
        }
        (character, was_in_text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_what_is_nested_and_not_what_stands_in_strings() {
        for (json, deep) in [
            ("1", 0),
            ("\"[[\"", 0),
            ("{}", 1),
            ("[[],[[]],[]]", 3),
            (r#"{"a":"\"[[","b":[{"c\\":[1]}]}"#, 4),
            (r#"["\\", "]", [ "\\\"[" ] ]"#, 2),
        ] {
            assert_eq!(depth(json), deep, "{json}");
        }
    }

    #[test]
    fn without_blanks_everything_else_is_as_it_came() {
        let json = "{ \"a b\" :\t[ 1.10 , 12345678901234567890123,\n -0 ],\r\n\"c\\\" \": \" \\u00e9\" }";
        let short = without_blanks(json);
        assert_eq!(short, "{\"a b\":[1.10,12345678901234567890123,-0],\"c\\\" \":\" \\u00e9\"}");
        let value = |text| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        assert_eq!(value(json), value(&short));
    }

    fn object(write: impl FnOnce(&mut Object<'_>)) -> String {
        let mut bytes = Vec::new();
        let mut object = Object::new(&mut bytes);
        write(&mut object);
        object.end();
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn every_character_is_written_as_serde_json_writes_it() {
        for character in (0..=0x300).chain([0x2028, 0xffff, 0x1_f600]).filter_map(char::from_u32) {
            let plain = format!("a{character}b{character}");
            let mut written = Vec::new();
            text(&mut written, |to| to.extend_from_slice(plain.as_bytes()));
            assert_eq!(written, serde_json::to_vec(&plain).expect("JSON"), "{plain:?}");
        }
    }

    #[test]
    fn an_object_has_its_members_in_order_and_may_have_none() {
        assert_eq!(object(|_| ()), "{}");
        let written = object(|object| {
            object.number("least", 0);
            object.number("most", u64::MAX);
            object.text("text", "");
            object.texts("none", &[""; 0], |_, _| ());
            object.texts("two", &["a", "\""], |text, to| to.extend_from_slice(text.as_bytes()));
            object.number("absent", None);
            object.text("absent", None);
            object.raw("absent", None);
            object.raw("raw", RawValue::from_string("[null]".to_owned()).ok().as_deref());
        });
        assert_eq!(
            written,
            r#"{"least":0,"most":18446744073709551615,"text":"","none":[],"two":["a","\""],"raw":[null]}"#
        );
    }
}
