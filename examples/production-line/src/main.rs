// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The production line of the ARTiS papers as an example: cameras take frames (RT0, one on each real-time CPU), threads process them in
//! parallel (RT1), as many tasks as there are defects analyse these (RT2), and an ordinary process keeps the statistics. Frames go through
//! rtscope's queues, which cost a camera no system call and never make it wait.
//!
//! `examples/production-line/run` makes the shield, has the cameras' deadlines watched, and undoes the shield.

mod camera;
mod class;
mod frame;
mod imaging;
mod plant;
mod statistics;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(
    name = "production-line",
    about = "Cameras, image processing, analyses and statistics, each in its scheduling class"
)]
struct Args {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Run the whole line, and compare what was planted with what was found
    Plant(plant::Options),
    /// A camera (the plant starts it)
    #[command(hide = true)]
    Camera(camera::Options),
    /// The statistics (the plant starts them)
    #[command(hide = true)]
    Statistics {
        /// Queues of records, as files
        queues: Vec<PathBuf>,
    },
}

fn main() -> Result<ExitCode> {
    match Args::parse().role {
        Role::Camera(options) => println!("{}", serde_json::to_string(&camera::run(&options)?)?),
        Role::Statistics { queues } => println!("{}", serde_json::to_string(&statistics::run(&queues)?)?),
        Role::Plant(options) => {
            let report = plant::run(&options)?;
            match options.json {
                true => println!("{}", serde_json::to_string(&report)?),
                false => print!("{}", plant::text(&report)),
            }
            return Ok(if report.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
    }
    Ok(ExitCode::SUCCESS)
}
