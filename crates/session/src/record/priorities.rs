// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Priorities in filters that the kernel evaluates: it has a scale of its own, and a filter in another matches nothing, silently.

use rtscope_event::Priority;

/// Fields of the scheduler's tracepoints that are priorities, as the kernel names them.
const FIELDS: [&str; 5] = ["prio", "prev_prio", "next_prio", "oldprio", "newprio"];
/// All that there are: SCHED_DEADLINE is -1, then real-time ones, then nice values.
const ALL: std::ops::RangeInclusive<i64> = -1..=139;
const SCALE: &str =
    "in the kernel's scale 0 to 98 is rt 99 to rt 1, 100 to 139 is nice -20 to nice 19, and -1 is dl";

/// What is wrong with the priorities in an expression, if something is.
pub fn fault(expression: &str) -> Option<String> {
    let places = expression.match_indices(|c: char| c.is_ascii_alphabetic() || c == '_');
    let starts = places.filter(|(at, _)| {
        let before = expression.get(..*at).and_then(|before| before.chars().next_back());
        before.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_')
    });
    starts.filter_map(|(at, _)| comparison(expression.get(at..)?)).find_map(|(field, sign, value)| {
        if let Ok(priority) = value.parse::<Priority>() {
            return Some(format!("the kernel evaluates this, and has {} for {value}: {SCALE}", priority.0));
        }
        let number = value.parse::<i64>().ok()?;
        let holds = |priority: i64| match sign {
            "==" => priority == number,
            "!=" => priority != number,
            "<=" => priority <= number,
            ">=" => priority >= number,
            "<" => priority < number,
            _ => priority > number,
        };
        (!ALL.into_iter().any(holds)).then(|| format!("no priority is {field} {sign} {value}: {SCALE}"))
    })
}

/// A field that is a priority, the comparison, and what it is compared with.
fn comparison(text: &str) -> Option<(&'static str, &'static str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
    let (name, rest) = text.split_at(end);
    let field = FIELDS.into_iter().find(|field| *field == name)?;
    let rest = rest.trim_start();
    let sign = ["==", "!=", "<=", ">=", "<", ">"].into_iter().find(|sign| rest.starts_with(sign))?;
    let value = rest.strip_prefix(sign)?.split(['&', '|', ')']).next()?.trim();
    Some((field, sign, value.trim_matches(['"', '\''])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_that_there_is_not_is_refused_with_the_scale() {
        for wrong in
            ["next_prio == -91", "prev_prio<-1", "prio > 139 && pid == 1", "(pid == 1 || next_prio == 140)"]
        {
            assert!(fault(wrong).is_some_and(|why| why.contains("0 to 98 is rt 99")), "{wrong}");
        }
        assert!(fault("next_prio == rt 90").is_some_and(|why| why.contains("has 9 for rt 90")));
        for right in [
            "next_prio < 100",
            "prio == -1",
            "prio >= 120 && comm == \"x\"",
            "next_pid == -91",
            "my_prio < -5",
        ] {
            assert_eq!(fault(right), None, "{right}");
        }
    }
}
