//! One attack of each family of the escape suite.

use std::net::TcpListener;

use backends::daemon::Engine;
use harness::{WALL_ATTACKS, wall_attack};
use libtest_mimic::Failed;
use sandbox::SandboxSpec;

use crate::place::{Place, executor, inhabited};

pub(crate) fn none_succeeds(place: &Place, engine: Engine) -> Result<(), Failed> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    executor().block_on(async {
        let backend = place.backend(engine);
        let (_sandbox, mut shell) = inhabited(&backend, &SandboxSpec::default()).await?;
        let mut out = Vec::new();
        for (family, command) in WALL_ATTACKS {
            let answer =
                shell.run(&wall_attack(command, port)).await.map_err(|error| format!("{family}: {error}"))?;
            if answer.contains("out") {
                out.push(format!("{family}: {}", answer.trim()));
            }
        }
        if out.is_empty() { Ok(()) } else { Err(Failed::from(out.join("; "))) }
    })
}
