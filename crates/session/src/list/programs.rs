// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instrumented programs that run now, as their files describe them. Nothing of them is changed; files of programs that have
//! ended, and hold nothing that a recording would want, are removed on the way.

use crate::{Failure, Observer};
use rtscope_programs::collector::{DiscardingSink, ProcessReport, Programs};
use rtscope_programs::directory::SHARED_MEMORY;
use rtscope_programs::patterns::RequestedEvents;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;

/// A program.
#[derive(Clone, Debug, Serialize)]
pub struct ListedProgram {
    /// With those of its events that were asked for.
    #[serde(flatten)]
    pub report: ProcessReport,
    /// The process that records its user's programs.
    pub recorded_by: Option<u32>,
}

/// Those that run; with patterns only those that have such an event. The observer hears which could not be read.
///
/// # Errors
/// When a pattern cannot be read, or nobody may look for programs.
pub fn programs(patterns: &[String], observer: &dyn Observer) -> Result<Vec<ListedProgram>, Failure> {
    let words: Vec<String> = patterns.iter().flat_map(|word| word.split(',')).map(str::to_string).collect();
    let wanted = RequestedEvents::parse(&words, u32::MAX)?;
    let mut programs = Programs::watching(Path::new(SHARED_MEMORY))?;
    programs.poll(&mut DiscardingSink).map_err(|error| Failure::doing("looking for programs", error))?;
    programs.refused.iter().for_each(|why| observer.note(why));
    programs.refusals().iter().for_each(|refusal| observer.note(&refusal.to_string()));
    let mut reports = programs.reports();
    for provider in reports.iter_mut().flat_map(|report| &mut report.providers) {
        Arc::make_mut(&mut provider.descriptions)
            .events
            .retain(|event| wanted.matches(&event.name, event.level));
    }
    reports.retain(|report| {
        let has_event = report.providers.iter().any(|provider| !provider.descriptions.events.is_empty());
        !report.dead && (has_event || patterns.is_empty())
    });
    let recorders = programs.recorded_by();
    let recorder = |uid: u32| recorders.iter().find(|(of, _)| *of == uid).map(|(_, pid)| *pid);
    Ok(reports
        .into_iter()
        .map(|report| ListedProgram { recorded_by: recorder(report.uid), report })
        .collect())
}
