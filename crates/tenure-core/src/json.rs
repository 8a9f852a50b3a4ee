//! Owns writing the JSON that every grant and release needs: a lease, an event, and the answer about them.
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
        self.to.push(self.separator);
        self.separator = b',';
        self.to.push(b'"');
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
        self.text_by(name, value, |value, to| to.extend_from_slice(value.as_bytes()));
    }

    /// A member that is a text, appended by `write`.
    #[inline]
    pub fn text_by<T>(&mut self, name: &'static str, value: impl Into<Option<T>>, write: impl FnOnce(T, &mut Vec<u8>)) {
        if let Some(value) = value.into() {
            self.member(name, |to| text(to, |to| write(value, to)));
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

/// How deep a JSON text is nested: 0 for a text or a number, 1 for a flat list.
pub fn depth(text: &str) -> usize {
    let (mut now, mut deepest) = (0usize, 0);
    let (mut in_string, mut is_escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                now += 1;
                deepest = deepest.max(now);
            }
            b'}' | b']' if !in_string => now = now.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn the_depth_counts_brackets_outside_of_texts() {
        for (text, deep) in
            [("1", 0), ("{}", 1), (r#"{"a":[{}],"b":1}"#, 3), (r#"["[[\"[{", []]"#, 2), (r#"["\\", [[]]]"#, 3)]
        {
            assert_eq!(depth(text), deep, "{text}");
        }
    }
}
