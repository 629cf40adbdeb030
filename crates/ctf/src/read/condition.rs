// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Conditions on fields: `prev_tid == 42 && (next_comm =~ "kworker*" || prio < 0)`.
//!
//! A small recursive parser, since users type short texts; its depth is limited nevertheless.

use super::tasks::TaskSpans;
use rtscope_event::{Pattern, Priority};
use std::cmp::Ordering;
use std::sync::Arc;

/// How a field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `==`
    Equal,
    /// `!=`
    Unequal,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
    /// `=~`, with a pattern
    Like,
}

/// A comparison of a field. `F` represents the field.
#[derive(Clone, Debug, PartialEq)]
pub struct Test<F = String> {
    /// The fields; the comparison has to hold for one of them.
    pub(crate) fields: Vec<F>,
    pub(crate) comparison: Comparison,
    text: Vec<u8>,
    number: Option<i128>,
    float: Option<f64>,
    /// `rt 90`, `nice 5`, `dl`: what people call a priority.
    pub(super) priority: Option<Priority>,
    /// The fields are numbers of threads, which have a certain name at the event's time.
    pub(super) tasks: Option<Arc<TaskSpans>>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition<F = String> {
    /// A comparison.
    Test(Test<F>),
    /// Both.
    And(Box<Condition<F>>, Box<Condition<F>>),
    /// One or both.
    Or(Box<Condition<F>>, Box<Condition<F>>),
    /// Not.
    Not(Box<Condition<F>>),
}

/// Parentheses and negations in each other.
const MAX_DEPTH: u32 = 100;

impl Condition {
    /// Parses a user's condition.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Condition, String> {
        let mut parser = Parser { rest: text, depth: 0 };
        let condition = parser.either()?;
        match parser.rest.trim_start() {
            "" => Ok(condition),
            rest => Err(format!("'{rest}' is left over; join comparisons with && or ||")),
        }
    }

    /// The condition that the comparison holds for one of these fields.
    #[must_use]
    pub fn any_of(fields: &[&str], comparison: Comparison, value: &str) -> Condition {
        let fields = fields.iter().map(|field| (*field).to_owned()).collect();
        Condition::Test(Test::new(fields, comparison, value))
    }

    /// The condition that one of these fields is the number of a thread that has a certain name at the event's time.
    #[must_use]
    pub fn any_task_of(fields: &[&str], spans: Arc<TaskSpans>) -> Condition {
        let fields = fields.iter().map(|field| (*field).to_owned()).collect();
        Condition::Test(Test { tasks: Some(spans), ..Test::new(fields, Comparison::Equal, "") })
    }

    /// The condition that one of both holds.
    #[must_use]
    pub fn or(self, other: Condition) -> Condition {
        Condition::Or(Box::new(self), Box::new(other))
    }

    /// All comparisons.
    pub(super) fn tests(&self) -> Vec<&Test> {
        match self {
            Condition::Test(test) => vec![test],
            Condition::Not(one) => one.tests(),
            Condition::And(one, other) | Condition::Or(one, other) => [one.tests(), other.tests()].concat(),
        }
    }
}

/// A value that a condition is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ConditionValue<'v> {
    /// A number.
    Integer(i128),
    /// A number that is not whole.
    Float(f64),
    /// A text.
    Text(&'v [u8]),
    /// A number, and its names.
    Label(i128, &'v [String]),
}

impl Condition {
    /// The same with places in the stead of names. What has no place is nowhere: no comparison with it holds.
    #[must_use]
    pub fn placed(&self, place: &mut dyn FnMut(&str) -> Option<usize>) -> Condition<usize> {
        self.map(&mut |name| place(name).into_iter().collect())
    }

    /// Its comparisons with what is no number: field and value. Those with patterns are none of them.
    #[must_use]
    pub fn words(&self) -> Vec<(String, String)> {
        let is_word = |test: &&Test| test.comparison != Comparison::Like && !test.is_number();
        let tests = self.tests().into_iter().filter(is_word);
        tests.flat_map(|test| test.fields.iter().map(|field| (field.clone(), test.value()))).collect()
    }

    /// The names of its fields.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.map::<()>(&mut |name| {
            names.push(name.clone());
            Vec::new()
        });
        names
    }
}

impl Condition<usize> {
    /// Whether it holds for these values, by place.
    #[must_use]
    pub fn holds_for(&self, values: &[ConditionValue<'_>]) -> bool {
        self.holds(&mut |test| {
            let values = test.fields.iter().filter_map(|place| values.get(*place));
            values.into_iter().any(|value| match *value {
                ConditionValue::Integer(number) => test.number_holds(number),
                ConditionValue::Float(number) => test.float_holds(number),
                ConditionValue::Text(text) => test.text_holds(text),
                ConditionValue::Label(number, _) if test.is_number() => test.number_holds(number),
                ConditionValue::Label(_, names) => {
                    let is_one = names.iter().any(|name| test.label_matches(name.as_bytes()));
                    is_one != (test.comparison == Comparison::Unequal)
                }
            })
        })
    }
}

impl<F> Condition<F> {
    pub(crate) fn map<G>(&self, places: &mut dyn FnMut(&F) -> Vec<G>) -> Condition<G> {
        let mut boxed = |condition: &Condition<F>| Box::new(condition.map(places));
        match self {
            Condition::And(one, other) => Condition::And(boxed(one), boxed(other)),
            Condition::Or(one, other) => Condition::Or(boxed(one), boxed(other)),
            Condition::Not(one) => Condition::Not(boxed(one)),
            Condition::Test(test) => Condition::Test(Test {
                fields: test.fields.iter().flat_map(places).collect(),
                comparison: test.comparison,
                text: test.text.clone(),
                number: test.number,
                float: test.float,
                priority: test.priority,
                tasks: test.tasks.clone(),
            }),
        }
    }

    pub(crate) fn holds(&self, test: &mut dyn FnMut(&Test<F>) -> bool) -> bool {
        match self {
            Condition::And(one, other) => one.holds(test) && other.holds(test),
            Condition::Or(one, other) => one.holds(test) || other.holds(test),
            Condition::Not(one) => !one.holds(test),
            Condition::Test(comparison) => test(comparison),
        }
    }
}

impl<F> Test<F> {
    fn new(fields: Vec<F>, comparison: Comparison, value: &str) -> Test<F> {
        let digits = value.strip_prefix('-').unwrap_or(value);
        let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
        let number = match hexadecimal {
            Some(digits) => i128::from_str_radix(digits, 16).ok(),
            None => digits.parse::<i128>().ok().filter(|_| !digits.starts_with(['+', '-'])),
        };
        let number = if digits.len() < value.len() { number.map(|number| -number) } else { number };
        Test {
            fields,
            comparison,
            text: value.as_bytes().to_vec(),
            number,
            float: value.parse().ok(),
            priority: value.parse().ok(),
            tasks: None,
        }
    }

    /// The value, as it was written.
    pub(super) fn value(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }

    pub(crate) fn is_number(&self) -> bool {
        self.number.is_some() || self.float.is_some()
    }

    fn order_holds(&self, order: Option<Ordering>) -> bool {
        use Ordering::{Equal, Greater, Less};
        match self.comparison {
            Comparison::Equal | Comparison::Like => order == Some(Equal),
            Comparison::Unequal => order != Some(Equal),
            Comparison::Less => order == Some(Less),
            Comparison::AtMost => matches!(order, Some(Less | Equal)),
            Comparison::Greater => order == Some(Greater),
            Comparison::AtLeast => matches!(order, Some(Greater | Equal)),
        }
    }

    pub(crate) fn number_holds(&self, number: i128) -> bool {
        match (self.number, self.float) {
            (Some(wanted), _) => self.order_holds(Some(number.cmp(&wanted))),
            (None, Some(wanted)) => self.order_holds((number as f64).partial_cmp(&wanted)),
            (None, None) => false,
        }
    }

    /// Of a priority: a higher one is more, whatever its number in the kernel; patterns are compared with its text.
    pub(super) fn priority_holds(&self, priority: Priority) -> bool {
        match self.priority {
            _ if self.comparison == Comparison::Like => self.label_matches(priority.to_string().as_bytes()),
            Some(wanted) => self.order_holds(Some(wanted.0.cmp(&priority.0))),
            None => false,
        }
    }

    pub(crate) fn float_holds(&self, number: f64) -> bool {
        let wanted = self.float.or(self.number.map(|number| number as f64));
        wanted.is_some_and(|wanted| self.order_holds(number.partial_cmp(&wanted)))
    }

    pub(crate) fn text_holds(&self, text: &[u8]) -> bool {
        match self.comparison {
            Comparison::Like => self.label_matches(text),
            _ => self.order_holds(Some(text.cmp(self.text.as_slice()))),
        }
    }

    pub(crate) fn label_matches(&self, text: &[u8]) -> bool {
        match self.comparison {
            Comparison::Like => Pattern::new(&String::from_utf8_lossy(&self.text)).matches(text),
            _ => text == self.text.as_slice(),
        }
    }
}

struct Parser<'t> {
    rest: &'t str,
    depth: u32,
}

impl Parser<'_> {
    fn accept(&mut self, sign: &str) -> bool {
        let rest = self.rest.trim_start();
        match rest.strip_prefix(sign) {
            Some(after) => {
                self.rest = after;
                true
            }
            None => false,
        }
    }

    fn either(&mut self) -> Result<Condition, String> {
        let mut condition = self.both()?;
        while self.accept("||") {
            condition = Condition::Or(Box::new(condition), Box::new(self.both()?));
        }
        Ok(condition)
    }

    fn both(&mut self) -> Result<Condition, String> {
        let mut condition = self.one()?;
        while self.accept("&&") {
            condition = Condition::And(Box::new(condition), Box::new(self.one()?));
        }
        Ok(condition)
    }

    fn one(&mut self) -> Result<Condition, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("it is nested too deep".to_owned());
        }
        let condition = if self.accept("!") {
            Condition::Not(Box::new(self.one()?))
        } else if self.accept("(") {
            let condition = self.either()?;
            if !self.accept(")") {
                return Err(match self.rest.trim_start() {
                    "" => "a ')' is missing at the end".to_owned(),
                    rest => format!("a ')' is missing before '{rest}'"),
                });
            }
            condition
        } else {
            self.comparison()?
        };
        self.depth -= 1;
        Ok(condition)
    }

    fn comparison(&mut self) -> Result<Condition, String> {
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '.').unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        if name.is_empty() {
            return Err(format!(
                "expected the name of a field at '{rest}'; write for instance next_tid == 42"
            ));
        }
        self.rest = after;
        let signs = [
            ("==", Comparison::Equal),
            ("!=", Comparison::Unequal),
            ("=~", Comparison::Like),
            ("<=", Comparison::AtMost),
            (">=", Comparison::AtLeast),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let found = signs.into_iter().find(|(sign, _)| self.accept(sign));
        let Some((_, comparison)) = found else {
            let rest = self.rest.trim_start();
            return Err(format!("after {name} comes one of == != < <= > >= =~, not '{rest}'"));
        };
        let value = self.value()?;
        Ok(Condition::Test(Test::new(vec![name.to_owned()], comparison, &value)))
    }

    fn value(&mut self) -> Result<String, String> {
        let rest = self.rest.trim_start();
        if let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) {
            let body = rest.get(1..).unwrap_or_default();
            let end = body.find(quote).ok_or_else(|| format!("{rest} has no closing quote"))?;
            let (value, after) = body.split_at(end);
            self.rest = after.get(1..).unwrap_or_default();
            return Ok(value.to_owned());
        }
        let end =
            rest.find(|c: char| c.is_whitespace() || matches!(c, ')' | '&' | '|')).unwrap_or(rest.len());
        let (value, after) = rest.split_at(end);
        if value.is_empty() {
            return Err("a value is missing at the end of a comparison".to_owned());
        }
        self.rest = after;
        if matches!(value, "rt" | "nice" | "prio") {
            return Ok(self.priority(value));
        }
        Ok(value.to_owned())
    }

    /// `rt 90` and `nice -5` are one value without quotes.
    fn priority(&mut self, class: &str) -> String {
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        if number.is_empty() {
            return class.to_owned();
        }
        self.rest = after;
        format!("{class} {number}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Evaluates with `a` = 5 and `s` = "text".
    fn holds(text: &str) -> bool {
        Condition::parse(text).unwrap().holds(&mut |test| match test.fields[0].as_str() {
            "a" => test.number_holds(5),
            "s" => test.text_holds(b"text"),
            "f" => test.float_holds(0.5),
            _ => false,
        })
    }

    #[test]
    fn conditions() {
        for (text, expected) in [
            ("a == 5", true),
            ("a==0x5", true),
            ("a != 5", false),
            ("a > 4 && a < 6", true),
            ("a >= 5 && a <= 5", true),
            ("a == 4 || a == 5", true),
            ("a == 4 || a == 5 && a == 6", false),
            ("(a == 4 || a == 5) && !(a == 6)", true),
            ("a > -1", true),
            ("a < 5.5", true),
            ("s == text", true),
            ("s == \"text\"", true),
            ("s =~ 't*'", true),
            ("s =~ 'x*'", false),
            ("s != other", true),
            ("f >= 0.5", true),
            ("nothing == 1", false),
            ("!(nothing == 1)", true),
        ] {
            assert_eq!(holds(text), expected, "{text}");
        }
    }

    #[test]
    fn faults_are_explained() {
        for (text, word) in [
            ("", "name of a field"),
            ("a", "after a"),
            ("a = 5", "after a"),
            ("a ==", "value is missing"),
            ("a == 1 b", "left over"),
            ("(a == 1", "')' is missing"),
            ("a == \"x", "closing quote"),
            (&"(".repeat(1000), "nested"),
        ] {
            let error = Condition::parse(text).unwrap_err();
            assert!(error.contains(word), "{text:.20}: {error}");
        }
    }
}
