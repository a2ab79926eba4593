//! `quorate doctor` on this machine and on real processes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use support::{Dev, failed, is_alive, quorate, succeeded, until_said, wait_until};

/// Returns the doctor's report, whether it found problems or not.
fn doctor(args: &[&str]) -> Value {
    let output = quorate(&[&["doctor", "--json"], args].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(i32::from(report["problems"] != 0)), "{output:?}");
    report
}

/// Returns the report in which this is found of the members. A busy node may take longer to answer than the doctor
/// waits.
fn doctor_of(members: &str, args: &[&str]) -> Value {
    let mut report = Value::Null;
    wait_until(members, || {
        report = doctor(args);
        found(&report, "members") == [members]
    });
    report
}

/// Returns the findings of a check, each with its level in front.
fn found(report: &Value, check: &str) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap().iter().filter(|finding| finding["check"] == check);
    let text = |key: &str, finding: &Value| finding[key].as_str().unwrap().to_owned();
    findings.map(|finding| format!("{} {}", text("level", finding), text("what", finding))).collect()
}

#[test]
fn the_doctor_checks_a_machine_and_its_cluster() {
    let dev = Dev::start(3);
    succeeded(&dev.sql(&[], "CREATE TABLE kept (value INTEGER)"));
    let config = dev.dir.path().join("node-1.toml");
    let config = config.to_str().unwrap();
    let whole = doctor_of("ok 3 of 3 voters answer", &["--config", config]);
    assert!(found(&whole, "configuration")[0].starts_with("ok"), "{whole}");
    assert!(found(&whole, "fsync")[0].contains("fdatasync of 4 KiB"), "{whole}");
    assert!(found(&whole, "secret")[0].starts_with("ok"), "{whole}");
    assert_eq!(found(&whole, "node").len(), 3);
    assert_eq!(found(&whole, "round trips").len(), 3);
    assert!(found(&whole, "clocks")[0].starts_with("ok at most"), "{whole}");
    for check in ["data directory", "file system", "space", "open files", "leader", "versions"] {
        assert_eq!(found(&whole, check).len(), 1, "{check}: {whole}");
    }
    assert!(
        !std::fs::read_dir(dev.dir.path().join("node-1"))
            .unwrap()
            .any(|item| { item.unwrap().file_name().to_string_lossy().contains("doctor") })
    );

    dev.kill(2);
    wait_until("its end", || !is_alive(dev.pid(2)));
    std::fs::set_permissions(dev.dir.path().join("secret"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let lost = "problem 2 of 3 voters answer";
    for args in [["--data-dir", dev.path()], ["--config", config]] {
        let report = doctor_of(lost, &args);
        assert!(report["problems"].as_u64().unwrap() >= 3, "{report}");
        assert!(found(&report, "node").iter().any(|text| text.contains("'2' at") && text.contains("not answer")));
        assert!(found(&report, "secret")[0].starts_with("problem"), "{report}");
    }
    let addr = dev.addr(1);
    let secret = dev.dir.path().join("secret");
    let remote = doctor_of(lost, &["--node", &addr, "--secret-file", secret.to_str().unwrap()]);
    assert!(found(&remote, "fsync").is_empty() && found(&remote, "round trips").len() == 2, "{remote}");

    let text = "PROBLEM  members        2 of 3 voters answer\n";
    until_said(text, || quorate(&["doctor", "--data-dir", dev.path()]));
}

#[test]
fn the_doctor_needs_no_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("x.toml");
    std::fs::write(&config, "data_dir = \"d\"\nlisen = 1").unwrap();
    let report = doctor(&["--config", config.to_str().unwrap()]);
    assert!(found(&report, "configuration")[0].contains("did you mean 'listen'?"), "{report}");

    std::fs::write(&config, "data_dir = \"d\"\nlisten = \"127.0.0.1:1\"").unwrap();
    let report = doctor(&["--config", config.to_str().unwrap()]);
    assert!(found(&report, "data directory")[0].contains("does not exist yet"), "{report}");
    assert!(found(&report, "cluster")[0].starts_with("note"), "{report}");
    assert!(!dir.path().join("d").exists());
    let nothing = failed(&quorate(&["doctor", "--node", "127.0.0.1:1"]));
    assert!(nothing.contains("secret"), "{nothing}");
}
