// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which two events belong together, as users write it: `A -> B by KEY`.

use rtscope_event::{EventClass, EventName};
use std::fmt;

/// Two events that belong together when they have the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairQuestion {
    /// The event that begins it, as it was asked for.
    pub begin: EventName,
    /// The event that ends it.
    pub end: EventName,
    /// The fields that have to be the same, in the first and in the second; none: events of the same thread.
    pub key: Vec<(String, String)>,
    /// Events between them, which have the key of the first.
    pub steps: Option<EventName>,
}

impl PairQuestion {
    /// From text: `A -> B by KEY`.
    ///
    /// # Errors
    /// Says what is wrong with it, and how it is written.
    pub fn parse(text: &str) -> Result<PairQuestion, String> {
        let wrong = |why: &str| {
            format!(
                "'{text}': {why}; write 'EVENT -> EVENT by FIELD', 'EVENT -> EVENT by FIELD=FIELD', or 'EVENT -> EVENT'"
            )
        };
        let (begin, rest) = text.split_once("->").ok_or_else(|| wrong("there is no ->"))?;
        let (end, key) = match rest.split_once(" by ") {
            Some((end, key)) => (end, key.trim()),
            None => (rest, ""),
        };
        let name = |part: &str| match part.trim() {
            "" => Err(wrong("an event is missing")),
            name if name.contains("->") || name.contains(char::is_whitespace) => {
                Err(wrong(&format!("'{name}' is not the name of an event")))
            }
            name => Ok(EventName::new(name)),
        };
        let field = |part: &str| {
            let (one, other) = part.split_once('=').unwrap_or((part, part));
            let (one, other) = (one.trim(), other.trim());
            let is_name = |name: &str| !name.is_empty() && !name.contains(['=', ' ']);
            match is_name(one) && is_name(other) {
                true => Ok((one.to_owned(), other.to_owned())),
                false => Err(wrong(&format!("'{}' is not a field", part.trim()))),
            }
        };
        let key = if key.is_empty() && !rest.contains(" by") {
            Vec::new()
        } else {
            key.split(',').map(field).collect::<Result<_, _>>()?
        };
        Ok(PairQuestion { begin: name(begin)?, end: name(end)?, key, steps: None })
    }

    /// The events of RTSCOPE_WORK_BEGIN, _STEP and _END (include/rtscope/rtscope.h).
    #[must_use]
    pub fn of_work() -> PairQuestion {
        let cookie = || "cookie".to_owned();
        let [begin, end, steps] = ["work:begin", "work:end", "work:step"].map(EventName::new);
        PairQuestion { begin, end, key: vec![(cookie(), cookie())], steps: Some(steps) }
    }

    /// Whether the events and fields are among these classes.
    ///
    /// # Errors
    /// Says which are not, and what else there is.
    pub fn check(&self, classes: &[EventClass]) -> Result<(), String> {
        for (name, which) in [(&self.begin, 0), (&self.end, 1)] {
            let found: Vec<&EventClass> = classes.iter().filter(|class| name.matches(class)).collect();
            if found.is_empty() {
                return Err(format!("the trace has no event '{name}'{}", nearest(name, classes)));
            }
            for key in &self.key {
                let field = if which == 0 { &key.0 } else { &key.1 };
                let has = |class: &&EventClass| is_given(field) || class.field(field).is_some();
                if !found.iter().any(has) {
                    let fields: Vec<&str> = found[0].fields.iter().map(|field| field.name.as_str()).collect();
                    return Err(format!(
                        "'{}' has no field '{field}'; it has {}",
                        found[0].name,
                        fields.join(", ")
                    ));
                }
            }
        }
        Ok(())
    }
}

impl PairQuestion {
    /// All events that it is about.
    pub fn events(&self) -> impl Iterator<Item = &EventName> {
        [&self.begin, &self.end].into_iter().chain(&self.steps)
    }

    /// The fields that have to be the same, as they are written; `None`: the thread.
    #[must_use]
    pub fn key_text(&self) -> Option<String> {
        let keys = self.key.iter().map(|(one, other)| match one == other {
            true => one.clone(),
            false => format!("{one}={other}"),
        });
        let keys: Vec<String> = keys.collect();
        (!keys.is_empty()).then(|| keys.join(","))
    }

    /// What keeps every event of this class, which is one of the two, from being paired: a field of the key that it does not have.
    #[must_use]
    pub fn missing_field(&self, class: &EventClass) -> Option<String> {
        let ends = [(&self.begin, 0), (&self.end, 1)];
        let is_missing = |field: &&String| !is_given(field) && class.field(field).is_none();
        let missing = ends.iter().filter(|(name, _)| name.matches(class)).find_map(|(_, which)| {
            self.key.iter().map(|key| if *which == 0 { &key.0 } else { &key.1 }).find(is_missing)
        })?;
        let fields: Vec<&str> = class.fields.iter().map(|field| field.name.as_str()).collect();
        let fields = if fields.is_empty() { "none".to_owned() } else { fields.join(", ") };
        Some(format!("'{}' has no field '{missing}'; it has {fields}", class.name))
    }
}

/// Fields that events need not have: the thread and the CPU that they happened on.
pub(crate) fn is_given(field: &str) -> bool {
    matches!(field, "tid" | "cpu")
}

impl fmt::Display for PairQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.begin, self.end)?;
        self.key_text().map_or(Ok(()), |key| write!(f, " by {key}"))
    }
}

/// Names that have a part of the wanted one, for an error.
fn nearest(name: &EventName, classes: &[EventClass]) -> String {
    const SHOWN: usize = 8;
    let name = name.to_string();
    let is_pattern = name.contains(['*', '?']);
    let similar = rtscope_event::nearest(&name, classes.iter().map(|class| class.name.as_str()));
    if let Some(similar) = similar.filter(|_| !is_pattern) {
        return format!("; the nearest name is '{similar}'");
    }
    let words = || name.split([':', '_', '*', '?', '.']).filter(|word| word.len() > 2);
    let score = |class: &EventClass| words().filter(|word| class.name.contains(word)).count();
    let mut names: Vec<(usize, &str)> =
        classes.iter().map(|class| (score(class), class.name.as_str())).collect();
    names.retain(|(score, _)| *score > 0);
    names.sort_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(other.1)));
    names.dedup_by_key(|(_, name)| *name);
    if names.is_empty() {
        return "; `rtscope stat` lists those that it has".to_owned();
    }
    let names: Vec<&str> = names.into_iter().take(SHOWN).map(|(_, name)| name).collect();
    format!("; it has {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str) -> EventClass {
        EventClass { name: name.to_owned(), ..EventClass::default() }
    }

    #[test]
    fn a_class_without_the_keys_field_can_never_be_paired() {
        let field = rtscope_event::FieldClass { name: "id".to_owned(), ..Default::default() };
        let class = EventClass { name: "a:begin".to_owned(), fields: vec![field], ..EventClass::default() };
        let missing = |text: &str| PairQuestion::parse(text).unwrap().missing_field(&class);
        assert_eq!(missing("a:begin -> a:end by id=order"), None);
        assert_eq!(missing("a:begin -> a:end by tid"), None);
        assert_eq!(missing("a:end -> a:x by order"), None);
        assert!(missing("a:begin -> a:end by order").unwrap().contains("has no field 'order'; it has id"));
    }

    #[test]
    fn what_the_trace_does_not_have_is_an_error_with_the_nearest_names() {
        let classes = [class("sched_process_fork"), class("sched_process_exec"), class("irq_handler_entry")];
        let question = PairQuestion::parse("sched_process_forked -> sched_process_exec").unwrap();
        let why = question.check(&classes).unwrap_err();
        assert!(why.contains("sched_process_fork") && !why.contains("irq_handler"), "{why}");
        let question = PairQuestion::parse("sched_process_fork -> sched_process_exec by x=tid").unwrap();
        assert!(question.check(&classes).unwrap_err().contains("no field 'x'"));
    }
}
