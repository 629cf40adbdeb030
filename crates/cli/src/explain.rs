// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope explain DIR`: the explanation of a saved late response, made again from its files alone.

use crate::args::ExplainOptions;
use crate::exit::Failure;
use crate::output::result;
use crate::terminal;
use crate::watch::report::Report;
use rtscope_analyze::explain::{Explainer, Explanation};
use rtscope_analyze::flame;
use rtscope_session::watch::{files, saved};
use rtscope_view::{Style, explanation_file};
use std::path::Path;

/// Reads, explains, prints.
pub fn run(options: &ExplainOptions) -> Result<(), Failure> {
    if let Some(file) = &options.flame {
        return draw(options, file);
    }
    let (trigger, recording) = files::read(&options.dir, &Report::new(options.json, options.verbose)?)?;
    let explainer = Explainer::new(&recording);
    let explanations: Vec<Explanation> = trigger.late.iter().map(|late| explainer.explain(late)).collect();
    if !options.json {
        let shown = terminal::style(options.verbose);
        // A pipe gets what the file next to the snapshot says.
        let in_file = Style { verbose: options.verbose, ..Style::default() };
        let style = if shown.sentences.is_some() { shown } else { in_file };
        result(&explanation_file(&trigger, &explanations, style));
        return Ok(());
    }
    for explanation in &explanations {
        let line = rtscope_view::explanation_json(explanation, None);
        result(&line.map_err(|error| Failure::doing("writing JSON", error))?);
    }
    Ok(())
}

/// Draws where late tasks were, and says where most of their time went.
fn draw(options: &ExplainOptions, file: &Path) -> Result<(), Failure> {
    let flame = flame::flame(&saved::late_in(&options.dir)?);
    std::fs::write(file, rtscope_view::flame_svg(&flame))
        .map_err(|error| Failure::doing(format!("writing {}", file.display()), error))?;
    if options.json {
        let line = rtscope_view::flame_json(&flame);
        result(&line.map_err(|error| Failure::doing("writing JSON", error))?);
    } else {
        result(rtscope_view::flame_text(&flame).trim_end());
    }
    Ok(())
}
