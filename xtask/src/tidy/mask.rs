//! Splits Rust text into code and comments, line by line.
//!
//! Rules about code must not trip over what strings and comments say, and counting braces needs
//! the braces of code alone. [`mask`] replaces the content of string and character literals by
//! blanks and moves comments aside. It knows escapes, raw strings, nested block comments and the
//! difference between `'a'` and `'a`; it does not know macros.

/// One line of a Rust file, taken apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MaskedLine {
    /// The code, literals blanked, comments left out.
    pub code: String,
    /// The text of the comments on this line.
    pub comment: String,
}

enum State {
    Code,
    LineComment,
    BlockComment { depth: usize },
    Text,
    RawText { hashes: usize },
}

struct Masker<'a> {
    chars: &'a [char],
    at: usize,
    state: State,
    lines: Vec<MaskedLine>,
}

/// Takes a Rust file apart; the result has one entry per line.
pub fn mask(text: &str) -> Vec<MaskedLine> {
    let chars: Vec<char> = text.chars().collect();
    let lines = vec![MaskedLine::default()];
    let mut masker = Masker {
        chars: &chars,
        at: 0,
        state: State::Code,
        lines,
    };
    while masker.at < chars.len() {
        masker.step();
    }
    masker.lines
}

impl Masker<'_> {
    fn step(&mut self) {
        if self.chars[self.at] == '\n' {
            if matches!(self.state, State::LineComment) {
                self.state = State::Code;
            }
            self.lines.push(MaskedLine::default());
            self.at += 1;
            return;
        }
        match self.state {
            State::Code => self.step_code(),
            State::LineComment => self.take_comment(1),
            State::BlockComment { depth } => self.step_block_comment(depth),
            State::Text => self.step_text(),
            State::RawText { hashes } => self.step_raw_text(hashes),
        }
    }

    fn step_code(&mut self) {
        if self.looking_at("//") {
            self.state = State::LineComment;
            self.at += 2;
        } else if self.looking_at("/*") {
            self.state = State::BlockComment { depth: 1 };
            self.at += 2;
        } else if self.chars[self.at] == '"' {
            self.state = State::Text;
            self.take_code(1);
        } else if let Some(hashes) = self.raw_text_start() {
            self.state = State::RawText { hashes };
            self.take_code(hashes + 2);
        } else if let Some(length) = self.char_literal_length() {
            self.blank_code(length);
        } else {
            self.take_code(1);
        }
    }

    fn step_block_comment(&mut self, depth: usize) {
        if self.looking_at("*/") {
            let state = State::BlockComment { depth: depth - 1 };
            self.state = if depth == 1 { State::Code } else { state };
            self.at += 2;
        } else if self.looking_at("/*") {
            self.state = State::BlockComment { depth: depth + 1 };
            self.at += 2;
        } else {
            self.take_comment(1);
        }
    }

    fn step_text(&mut self) {
        match self.chars[self.at] {
            // A backslash at a line's end continues the text; the line is still counted.
            '\\' if self.chars.get(self.at + 1) == Some(&'\n') => self.blank_code(1),
            '\\' => self.blank_code(2),
            '"' => {
                self.state = State::Code;
                self.take_code(1);
            }
            _ => self.blank_code(1),
        }
    }

    fn step_raw_text(&mut self, hashes: usize) {
        let closing = format!("\"{}", "#".repeat(hashes));
        if self.looking_at(&closing) {
            self.state = State::Code;
            self.take_code(hashes + 1);
        } else {
            self.blank_code(1);
        }
    }

    /// The number of `#` of a raw string that starts here, if one does.
    fn raw_text_start(&self) -> Option<usize> {
        let is_word = |c: &char| c.is_alphanumeric() || *c == '_';
        let prefix = self.chars[..self.at]
            .iter()
            .rev()
            .take_while(|c| is_word(c))
            .count();
        let is_prefixed = prefix == 1 && matches!(self.chars[self.at - 1], 'b' | 'c');
        if self.chars[self.at] != 'r' || !(prefix == 0 || is_prefixed) {
            return None;
        }
        let hashes = self.chars[self.at + 1..]
            .iter()
            .take_while(|c| **c == '#')
            .count();
        (self.chars.get(self.at + 1 + hashes) == Some(&'"')).then_some(hashes)
    }

    /// The length of a character literal that starts here; `None` for a lifetime.
    fn char_literal_length(&self) -> Option<usize> {
        if self.chars[self.at] != '\'' {
            return None;
        }
        let rest = &self.chars[self.at + 1..];
        if rest.first() == Some(&'\\') {
            let close = rest.iter().skip(2).position(|c| *c == '\'')?;
            return Some(close + 4);
        }
        (rest.get(1) == Some(&'\'')).then_some(3)
    }

    fn looking_at(&self, text: &str) -> bool {
        let rest = &self.chars[self.at..];
        text.chars()
            .enumerate()
            .all(|(index, c)| rest.get(index) == Some(&c))
    }

    fn line(&mut self) -> &mut MaskedLine {
        self.lines
            .last_mut()
            .expect("there is a line from the start")
    }

    fn take_code(&mut self, count: usize) {
        let taken: String = self.chars[self.at..].iter().take(count).collect();
        self.line().code.push_str(&taken);
        self.at += count;
    }

    fn blank_code(&mut self, count: usize) {
        self.line().code.push_str(&" ".repeat(count));
        self.at += count;
    }

    fn take_comment(&mut self, count: usize) {
        let taken: String = self.chars[self.at..].iter().take(count).collect();
        self.line().comment.push_str(&taken);
        self.at += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Vec<String> {
        mask(text)
            .into_iter()
            .map(|line| line.code.trim_end().to_owned())
            .collect()
    }

    #[test]
    fn blanks_literals_and_keeps_lines() {
        assert_eq!(code("a(\"}\\\"{\", b\"{\");"), ["a(\"    \", b\" \");"]);
        assert_eq!(code("x = r#\"{ \" }\"#;\ny"), ["x = r#\"     \"#;", "y"]);
        assert_eq!(code("m(\"one \\\n two {\");"), ["m(\"", "      \");"]);
    }

    #[test]
    fn tells_characters_from_lifetimes() {
        assert_eq!(
            code("f::<'a>('{', '\\'', '\\u{7d}')"),
            ["f::<'a>(   ,     ,         )"]
        );
        assert_eq!(code("let r = for_each('\"');"), ["let r = for_each(   );"]);
    }

    #[test]
    fn moves_comments_aside() {
        let lines = mask("let a; // see {\n/* one /* two */ { */ let b;");
        assert_eq!(lines[0].code, "let a; ");
        assert_eq!(lines[0].comment, " see {");
        assert_eq!(lines[1].code, " let b;");
        assert_eq!(lines[1].comment, " one  two  { ");
    }
}
