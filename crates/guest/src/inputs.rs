//! Standard input for processes and named pipes: the host's messages about it, and the answers.

use std::io;

use wire::{FromGuest, ToGuest};

use crate::Guest;
use crate::process::Channel;

impl Guest {
    /// Handles a message about standard input. The caller passes no other.
    pub(crate) fn obey_about_input(&mut self, message: ToGuest) -> io::Result<()> {
        match message {
            ToGuest::Stdin { process, data, .. } => return self.take_stdin(process, data),
            ToGuest::StdinEnd { process } => {
                self.pipes.end(process);
                return self.with(process, |open| open.stdin().end());
            }
            ToGuest::OpenInput { request, process, path } => {
                let opened = self.pipes.open(process, &path);
                return self.note_placed(request, opened);
            }
            ToGuest::CloseInput { process } => {
                self.pipes.close(process);
                self.reading.forget(process);
            }
            ToGuest::AwaitRead { request, process } => self.reading.ask(request, process),
            _ => {}
        }
        Ok(())
    }

    /// Standard input for a process, or for the reader of a named pipe.
    fn take_stdin(&mut self, process: u32, data: Vec<u8>) -> io::Result<()> {
        if self.processes.contains_key(&process) {
            self.with(process, |open| open.stdin().send(data))?;
            return self.carry(process, Channel::Stdin);
        }
        let taken = self.pipes.send(process, data).unwrap_or(0);
        self.tell_taken(process, taken)
    }

    /// Opens named pipes that have a reader by now, and answers whether a program waits for input.
    pub(crate) fn look_at_inputs(&mut self) -> io::Result<()> {
        for (process, bytes) in self.pipes.try_open() {
            self.tell_taken(process, bytes)?;
        }
        let Some(number) = self.reading.due() else { return Ok(()) };
        let stdin = match self.processes.get_mut(&number) {
            Some(process) => Some(process.stdin()),
            None => self.pipes.stdin(number),
        };
        let Some(request) = self.reading.answer(stdin) else { return Ok(()) };
        // A program that waits has written its prompt before.
        for (number, process) in &mut self.processes {
            for message in process.drain_output(*number) {
                self.host.send(&message)?;
            }
        }
        self.host.send(&FromGuest::Done { request })
    }

    pub(crate) fn flush_pipe(&mut self, process: u32) -> io::Result<()> {
        let bytes = self.pipes.stdin(process).map_or(0, |stdin| stdin.flush());
        self.tell_taken(process, bytes)
    }

    pub(crate) fn tell_taken(&mut self, process: u32, bytes: u32) -> io::Result<()> {
        if bytes == 0 { Ok(()) } else { self.host.send(&FromGuest::StdinTaken { process, bytes }) }
    }
}
