//! Links of sandboxes that were built ahead: a spare has no listener until its lease, and a copy of a warm interpreter
//! holds no socket of the guest.

use std::time::Duration;

use engine::Engine;

use crate::stage::{Stage, echo, program, run, told, tools};

/// Waits until the pool has a spare.
async fn until_spare(engine: &Engine) {
    let wait = async {
        while engine.pool_snapshot().levels.iter().all(|level| level.ready == 0) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap();
}

const TALK: &str = "c = connect(); c.sendall(b'hello'); print(read_exactly(c, 5).decode())";

pub(crate) async fn a_spare_is_granted_a_link_after_its_lease(stage: &Stage) {
    let engine = stage.warm_engine();
    told(&run(&engine, program("print(1)", Vec::new())).await);
    for round in 0..6 {
        until_spare(&engine).await;
        let hits = engine.pool_snapshot().hits;
        // A spare that was never granted anything, and one that is granted a link at its lease.
        let code = "print(os.path.exists('/tmp/.palisade'), os.path.exists('/proc/net/unix') and 'tools.sock' in open('/proc/net/unix').read())";
        if round % 2 == 0 {
            assert_eq!(told(&run(&engine, program(code, Vec::new())).await), "False False");
        } else {
            assert_eq!(told(&run(&engine, program(TALK, tools(echo))).await), "hello");
        }
        assert_eq!(engine.pool_snapshot().hits, hits + 1, "the run did not take the spare");
    }
    engine.close_pool().await;
}

pub(crate) async fn a_copy_of_a_warm_interpreter_holds_no_socket_of_the_guest(stage: &Stage) {
    // In a persistent sandbox the guest forks an interpreter while links are open: the replacement for one that died.
    let engine = stage.warm_engine();
    told(&run(&engine, program("print(1)", Vec::new())).await);
    let code = r#"
own = sorted(n for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}") and os.readlink(f"/proc/self/fd/{n}").startswith("socket"))
c = connect(); c.sendall(b"x"); c.recv(1)
print(own)
"#;
    for _ in 0..3 {
        until_spare(&engine).await;
        // Only the driver's channel, which is descriptor 3 or its private copy.
        let stdout = told(&run(&engine, program(code, tools(echo))).await);
        assert_eq!(stdout.matches('\'').count(), 2, "{stdout}");
    }
    engine.close_pool().await;
}
