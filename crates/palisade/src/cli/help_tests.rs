//! Snapshot of every command's help text: a changed option shows in the snapshot's diff.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};

use super::Cli;

const WIDTH: usize = 100;

/// Writes the help of a command and of its subcommands.
fn write_help(command: &mut Command, text: &mut String) {
    let help = command.render_long_help().to_string();
    writeln!(text, "==== {}\n", command.get_bin_name().unwrap_or_else(|| command.get_name())).unwrap();
    for line in help.lines() {
        writeln!(text, "{}", line.trim_end()).unwrap();
    }
    text.push('\n');
    for below in command.get_subcommands_mut().filter(|below| below.get_name() != "help") {
        write_help(below, text);
    }
}

#[test]
fn the_help_of_all_commands_is_as_before() {
    let mut command = Cli::command().term_width(WIDTH).version("0.0.0");
    command.build();
    let mut text = String::new();
    write_help(&mut command, &mut text);
    insta::assert_snapshot!("help", text);
}
