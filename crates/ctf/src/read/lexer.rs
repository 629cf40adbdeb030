// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TSDL text → tokens.
//!
//! Tokens are made one at a time and point into the text, so that memory does not grow with hostile metadata.

use rtscope_event::exact;
use std::borrow::Cow;

/// A fault in the metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) line: u32,
    pub(crate) what: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token<'t> {
    Word(&'t str),
    Number(u64),
    Text(Cow<'t, str>),
    /// A sign; those of several characters are `:=` and `...`.
    Sign(&'t str),
    End,
}

impl Token<'_> {
    /// Its name in messages.
    pub(crate) fn shown(&self) -> String {
        match self {
            Token::Word(word) => format!("`{word}`"),
            Token::Number(number) => format!("`{number}`"),
            Token::Text(text) => format!("{text:?}"),
            Token::Sign(sign) => format!("`{sign}`"),
            Token::End => "the end".to_owned(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Lexer<'t> {
    text: &'t str,
    at: usize,
    /// Of the next character, from 1.
    pub(crate) line: u32,
}

impl<'t> Lexer<'t> {
    pub(crate) fn new(text: &'t str) -> Lexer<'t> {
        Lexer { text, at: 0, line: 1 }
    }

    /// Bytes from the beginning to the end of the last token.
    pub(crate) fn place(&self) -> usize {
        self.at
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(crate) fn fault(&self, what: impl Into<String>) -> Fault {
        Fault { line: self.line, what: what.into() }
    }

    fn advance(&mut self, bytes: usize) -> &'t str {
        let taken = self.rest().get(..bytes).unwrap_or_default();
        let lines = taken.bytes().filter(|byte| *byte == b'\n').count();
        self.line = self.line.saturating_add(exact::count(lines));
        self.at += taken.len();
        taken
    }

    fn skip_blanks(&mut self) -> Result<(), Fault> {
        loop {
            let rest = self.rest();
            let blanks = rest.len() - rest.trim_start().len();
            if blanks > 0 {
                self.advance(blanks);
            } else if rest.starts_with("/*") {
                let end = rest.find("*/").ok_or_else(|| self.fault("this comment has no end"))?;
                self.advance(end + 2);
            } else if rest.starts_with("//") {
                self.advance(rest.find('\n').unwrap_or(rest.len()));
            } else {
                return Ok(());
            }
        }
    }

    /// The next token.
    pub(crate) fn next(&mut self) -> Result<Token<'t>, Fault> {
        self.skip_blanks()?;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(Token::End) };
        if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            return Ok(Token::Word(self.advance(end)));
        }
        if first.is_ascii_digit() {
            return self.number();
        }
        if first == '"' || first == '\'' {
            return self.quoted(first);
        }
        let length = ["...", ":=", "->"].into_iter().find(|sign| rest.starts_with(sign));
        match length.map_or_else(|| first.is_ascii_punctuation().then_some(1), |sign| Some(sign.len())) {
            Some(length) => Ok(Token::Sign(self.advance(length))),
            None => Err(self.fault(format!("unexpected character {first:?}"))),
        }
    }

    fn number(&mut self) -> Result<Token<'t>, Fault> {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let text = rest[..end].trim_end_matches(['u', 'U', 'l', 'L']);
        let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => (digits, 16),
            None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
            None => (text, 10),
        };
        let number = u64::from_str_radix(digits, radix)
            .map_err(|_| self.fault(format!("{text} is not a number of at most 64 bits")))?;
        self.advance(end);
        Ok(Token::Number(number))
    }

    /// A string, or a character of C.
    fn quoted(&mut self, quote: char) -> Result<Token<'t>, Fault> {
        let body = &self.rest()[1..];
        let mut escaped = false;
        let end = body.find(|c: char| {
            let closes = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            closes
        });
        let end = end.ok_or_else(|| self.fault("this string has no end"))?;
        let body = &body[..end];
        self.advance(end + 2);
        Ok(Token::Text(if body.contains('\\') { Cow::Owned(unescape(body)) } else { Cow::Borrowed(body) }))
    }
}

/// The escapes that writers use: quotes, backslashes, ends of lines. Others stand for their character.
fn unescape(body: &str) -> String {
    let mut text = String::with_capacity(body.len());
    let mut characters = body.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            text.push(character);
            continue;
        }
        match characters.next() {
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some(other) => text.push(other),
            None => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Vec<Token<'_>>, Fault> {
        let mut lexer = Lexer::new(text);
        let mut tokens = Vec::new();
        loop {
            match lexer.next()? {
                Token::End => return Ok(tokens),
                token => tokens.push(token),
            }
        }
    }

    #[test]
    fn tokens() {
        let text = "/* c */ a.b := 0x1F 017 12UL // x\n 0 ... 30 \"q\\\"\\\\\" ;";
        let expected = vec![
            Token::Word("a"),
            Token::Sign("."),
            Token::Word("b"),
            Token::Sign(":="),
            Token::Number(31),
            Token::Number(15),
            Token::Number(12),
            Token::Number(0),
            Token::Sign("..."),
            Token::Number(30),
            Token::Text(Cow::from("q\"\\")),
            Token::Sign(";"),
        ];
        assert_eq!(all(text).unwrap(), expected);
    }

    #[test]
    fn faults_name_their_line() {
        for text in ["\n\n\"open", "\n\n/* open", "\n\n0xg", "\n\nü", "\n\n99999999999999999999"] {
            assert_eq!(all(text).unwrap_err().line, 3, "{text:?}");
        }
    }
}
