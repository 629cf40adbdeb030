// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where late tasks lost their time, as a flame graph: the task at the top, below it its program from the first function on, below that the kernel. What is as wide as
//! the picture is in all of it.

use crate::plot::escaped;
use crate::units::{counted, duration_text, share_text};
use crate::{clean, json, late};
use rtscope_analyze::flame::{Flame, FlameFrame, FlameKind};
use serde::Serialize;
use std::fmt::Write;

/// `rtscope explain --flame --json`.
pub const FLAME_SCHEMA: &str = "rtscope.flame/1";

const WIDTH: f64 = 1200.0;
const SIDE: f64 = 10.0;
const TOP: f64 = 60.0;
const ROW: f64 = 17.0;
/// Narrower boxes are not drawn: nobody would see them.
const NARROWEST: f64 = 0.3;
/// Of a letter.
const LETTER: f64 = 6.7;
/// Places that the text shows, and how many functions of each: those of the C library come first.
const PLACES: usize = 5;
const NAMES: usize = 7;

/// A box, with what is below it.
#[derive(Debug, Default)]
struct Node<'a> {
    time_ns: u64,
    count: u64,
    /// In the order in which they came: the longest first.
    below: Vec<(&'a FlameFrame, Node<'a>)>,
}

impl<'a> Node<'a> {
    fn of(flame: &'a Flame) -> Node<'a> {
        let mut root = Node::default();
        for stack in &flame.stacks {
            let mut node = &mut root;
            node.add(stack.time_ns, stack.count);
            for frame in &stack.frames {
                let at = node.below.iter().position(|(known, _)| *known == frame).unwrap_or_else(|| {
                    node.below.push((frame, Node::default()));
                    node.below.len() - 1
                });
                node = &mut node.below[at].1;
                node.add(stack.time_ns, stack.count);
            }
        }
        root
    }

    fn add(&mut self, time_ns: u64, count: u64) {
        self.time_ns += time_ns;
        self.count += count;
    }

    fn depth(&self) -> usize {
        self.below.iter().map(|(_, node)| 1 + node.depth()).max().unwrap_or(0)
    }
}

/// The picture.
#[must_use]
pub fn flame_svg(flame: &Flame) -> String {
    let root = Node::of(flame);
    let height = TOP + ROW * (root.depth() + 1) as f64 + SIDE;
    let title = flame
        .tracker
        .map_or_else(|| "no stacks".to_owned(), |tracker| late::tracker_nouns(tracker).to_owned());
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" font-size=\"11\">"
    );
    let _ = writeln!(out, "<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>");
    let _ = writeln!(
        out,
        "<text x=\"{SIDE}\" y=\"20\" font-size=\"14\">Late {}: {}, {} in all</text>",
        escaped(&title),
        counted(flame.count, "time", "times"),
        duration_text(flame.time_ns)
    );
    let _ = writeln!(
        out,
        "<text x=\"{SIDE}\" y=\"38\" fill=\"#555\">task, its program, [inlined], the kernel; wide is long{}</text>",
        escaped(&without(flame))
    );
    draw(&mut out, &root, flame.time_ns, SIDE, 0);
    out.push_str("</svg>\n");
    out
}

fn without(flame: &Flame) -> String {
    match flame.without_stack {
        0 => String::new(),
        count => {
            let time = duration_text(flame.without_stack_ns);
            format!("; {} without a stack ({time}) not shown", counted(count, "time", "times"))
        }
    }
}

fn draw(out: &mut String, node: &Node<'_>, all_ns: u64, left: f64, row: usize) {
    let mut x = left;
    for (frame, below) in &node.below {
        let width = below.time_ns as f64 / all_ns.max(1) as f64 * (WIDTH - 2.0 * SIDE);
        if width >= NARROWEST {
            draw_box(out, frame, below, all_ns, (x, TOP + ROW * row as f64, width));
            draw(out, below, all_ns, x, row + 1);
        }
        x += width;
    }
}

fn draw_box(
    out: &mut String,
    frame: &FlameFrame,
    node: &Node<'_>,
    all_ns: u64,
    (x, y, width): (f64, f64, f64),
) {
    let name = match frame.kind {
        FlameKind::Inlined => format!("[{}]", clean(&frame.name)),
        _ => clean(&frame.name),
    };
    let permille = (u128::from(node.time_ns) * 1000 / u128::from(all_ns.max(1))) as u32;
    let _ = write!(
        out,
        "<g><title>{}: {}, {}, {}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{}\" stroke=\"#fff\" stroke-width=\"0.5\"/>",
        escaped(&name),
        duration_text(node.time_ns),
        share_text(permille),
        counted(node.count, "time", "times"),
        ROW - 1.0,
        colour(frame.kind)
    );
    let letters = ((width - 4.0) / LETTER) as usize;
    if letters >= 3 {
        let shown: String = match name.chars().count() > letters {
            true => name.chars().take(letters - 2).chain("..".chars()).collect(),
            false => name,
        };
        let _ = write!(out, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", x + 2.0, y + 12.0, escaped(&shown));
    }
    out.push_str("</g>\n");
}

/// Tints of the colours of all our pictures, on which black letters can be read.
fn colour(kind: FlameKind) -> &'static str {
    match kind {
        FlameKind::Task => "#b9b9b9",
        FlameKind::User => "#f2b56b",
        FlameKind::Inlined => "#f8dcb0",
        FlameKind::Kernel => "#8cc4e8",
        FlameKind::Unknown => "#e0e0e0",
    }
}

/// How much was added up, and the places with the most time.
#[must_use]
pub fn flame_text(flame: &Flame) -> String {
    let Some(tracker) = flame.tracker else {
        return "no stacks: watch offcpu, syscall and lock have them with --stacks\n".to_owned();
    };
    let mut text = format!(
        "{}: {}, {} in all, {}{}\n",
        late::tracker_nouns(tracker),
        counted(flame.count, "time", "times"),
        duration_text(flame.time_ns),
        counted(flame.stacks.len() as u64, "stack", "different stacks"),
        without(flame),
    );
    for stack in flame.stacks.iter().take(PLACES) {
        let is_of_program = |frame: &&FlameFrame| matches!(frame.kind, FlameKind::User | FlameKind::Inlined);
        let names = stack.frames.iter().rev().filter(is_of_program).map(|frame| clean(&frame.name));
        let mut names: Vec<String> = names.collect();
        names.dedup();
        names.truncate(NAMES);
        let permille = (u128::from(stack.time_ns) * 1000 / u128::from(flame.time_ns.max(1))) as u32;
        let (time, share) = (duration_text(stack.time_ns), share_text(permille));
        text.push_str(&format!("  {time:>9} {share:>7} {:>6}  {}\n", stack.count, names.join(" < ")));
    }
    text
}

/// The object.
///
/// # Errors
/// When serde_json refuses, which none of these types gives it reason to.
pub fn flame_json(flame: &Flame) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Object<'a> {
        schema: &'static str,
        #[serde(flatten)]
        flame: &'a Flame,
    }
    json::sorted(&Object { schema: FLAME_SCHEMA, flame })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_analyze::flame::FlameStack;
    use rtscope_event::Tracker;

    fn frame(kind: FlameKind, name: &str) -> FlameFrame {
        FlameFrame { kind, name: name.to_owned() }
    }

    fn example() -> Flame {
        let stack = |names: &[(FlameKind, &str)], time_ns, count| FlameStack {
            frames: names.iter().map(|(kind, name)| frame(*kind, name)).collect(),
            time_ns,
            count,
        };
        use FlameKind::{Inlined, Kernel, Task, User};
        Flame {
            tracker: Some(Tracker::Offcpu),
            time_ns: 4_000_000,
            count: 4,
            without_stack: 1,
            without_stack_ns: 9_000,
            stacks: vec![
                stack(&[(Task, "a"), (User, "main"), (Inlined, "f<int>"), (Kernel, "futex")], 3_000_000, 3),
                stack(&[(Task, "a"), (User, "main"), (User, "<evil>\u{1b}[2J")], 1_000_000, 1),
            ],
        }
    }

    /// Name, left edge and width of each box.
    fn boxes(svg: &str) -> Vec<(String, f64, f64)> {
        let attribute = |line: &str, name: &str| -> f64 {
            let rest = line.split_once(&format!(" {name}=\"")).expect("it has that").1;
            rest.split('"').next().expect("a value").parse().expect("a number")
        };
        let is_box = |line: &&str| line.starts_with("<g>");
        let parse = |line: &str| {
            let title = line.split_once("<title>").expect("a title").1.split(": ").next().expect("a name");
            let rect = line.split_once("<rect").expect("a box").1;
            (title.to_owned(), attribute(rect, "x"), attribute(rect, "width"))
        };
        svg.lines().filter(is_box).map(parse).collect()
    }

    #[test]
    fn boxes_are_as_wide_as_their_time_and_below_their_callers() {
        let svg = flame_svg(&example());
        let boxes = boxes(&svg);
        let names: Vec<&str> = boxes.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["a", "main", "[f&lt;int&gt;]", "futex", "&lt;evil&gt;\\u{1b}[2J"]);
        let widths: Vec<f64> = boxes.iter().map(|(.., width)| *width).collect();
        assert_eq!(widths, [1180.0, 1180.0, 885.0, 885.0, 295.0]);
        assert_eq!(boxes[4].1, boxes[2].1 + 885.0);
        assert!(svg.contains("1 time without a stack (9 us) not shown"), "{svg}");
    }

    #[test]
    fn the_text_has_the_places_with_the_most_time_and_json_all() {
        let text = flame_text(&example());
        let expected = "times off a CPU: 4 times, 4 ms in all, 2 different stacks; 1 time without a stack (9 us) not shown\n       3 ms  75.0 %      3  f<int> < main\n";
        assert!(text.starts_with(expected), "{text}");
        let json: serde_json::Value = serde_json::from_str(&flame_json(&example()).unwrap()).unwrap();
        assert_eq!(json["schema"], FLAME_SCHEMA);
        assert_eq!(json["stacks"][0]["frames"][1]["name"], "main");
        let none = Flame { tracker: None, stacks: Vec::new(), ..example() };
        assert!(flame_text(&none).starts_with("no stacks"));
    }
}
