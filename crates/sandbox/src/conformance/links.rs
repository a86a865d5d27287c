//! Links: a listener inside, whose connections the stream carries in both directions while a program runs.

use super::wait::within;
use super::{Subject, holds, run};
use crate::SandboxSpec;

const PORT: u16 = 8731;
/// More than any window or buffer between the program and the test.
const MANY_BYTES: usize = 2 << 20;

pub(super) async fn check(subject: Subject<'_>) -> Result<(), String> {
    let (_sandbox, mut shell) = subject.inhabited(&SandboxSpec::default()).await?;
    let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{PORT}");
    let many = format!(
        "bash -c '{connect}; head -c {MANY_BYTES} /dev/zero | tr \"\\0\" x >&3 & \
         head -c {MANY_BYTES} <&3 | tr -cd x | wc -c; wait; echo done'"
    );
    let output = within("a program with links ends", shell.run_with_echo(PORT, &many)).await??;
    holds(
        output == format!("{MANY_BYTES}\ndone\n"),
        "everything that passes a link comes whole, both ways",
        &output,
    )?;
    let whole = format!("bash -c '{connect}; echo over the link >&3; head -n 1 <&3'");
    let output = within("a program with a link ends", shell.run_with_echo(PORT, &whole)).await??;
    holds(output == "over the link\n", "a link works again in the same sandbox", &output)?;
    let refused = format!("bash -c '{connect}' 2>/dev/null || echo refused");
    let output = run(&mut shell, &refused).await?;
    holds(output == "refused\n", "nothing listens once the links were ended", &output)
}
