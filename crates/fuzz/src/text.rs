// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel describes and records through ftrace, and files of rtscope's own that anybody may have changed.

use rtscope_analyze::explain::Explainer;
use rtscope_event::Recording;
use rtscope_ftrace::format::EventFormat;
use rtscope_ftrace::page::{Page, PageLayout};
use rtscope_shield::journal::Journal;
use rtscope_store::trigger;
use rtscope_testkit::random::Random;
use rtscope_view::Style;
use std::sync::OnceLock;

pub fn format(data: &[u8]) -> Option<()> {
    let text = std::str::from_utf8(data).ok()?;
    let layout = PageLayout::parse(text).ok();
    let format = EventFormat::parse("system", text).ok();
    for field in format.iter().flat_map(|format| &format.fields) {
        let _ = format.as_ref().and_then(|format| format.symbols(&field.name));
    }
    layout.map(drop).or(format.map(drop))
}

pub fn page(data: &[u8]) -> Option<()> {
    let layout = PageLayout::of_64_bit(4096);
    let page = Page::new(&layout, data).ok()?;
    let mut events = page.events();
    let found = events.by_ref().count();
    assert!(found <= data.len() / 4, "{found} events in {} bytes", data.len());
    let _ = (events.broken_at(), page.missed(), page.is_empty(), page.start_ns());
    Some(())
}

pub fn journal(data: &[u8]) -> Option<()> {
    let journal = serde_json::from_slice::<Journal>(data).ok()?;
    assert!(journal.changes().count() <= journal.steps.len());
    let text = serde_json::to_vec(&journal).unwrap();
    let again: Journal = serde_json::from_slice(&text).unwrap();
    assert_eq!(text, serde_json::to_vec(&again).unwrap());
    Some(())
}

/// Explains it, with events that have nothing to do with it.
pub fn trigger(data: &[u8]) -> Option<()> {
    static EVENTS: OnceLock<Recording> = OnceLock::new();
    let text = std::str::from_utf8(data).ok()?;
    let trigger = trigger::parse(text).ok()?;
    let explainer = Explainer::new(EVENTS.get_or_init(|| Random(3).recording(60)));
    for late in &trigger.late {
        let explanation = explainer.explain(late);
        let _ = rtscope_view::explanation_text(&explanation, Style::default());
        rtscope_view::explanation_json(&explanation, None).unwrap();
    }
    trigger.losses.iter().for_each(|loss| drop(rtscope_view::loss_line(loss)));
    Some(())
}
