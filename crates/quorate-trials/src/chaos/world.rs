//! Where the nodes run: each in a network namespace with a small file system of its own if the machine allows it,
//! otherwise all on the loopback interface.
//!
//! The namespaces depend on this process: it starts itself again as the first process of a new namespace of processes,
//! mounts and networks. When it ends for any reason, the kernel ends all processes in there, and removes the mounts and
//! links. Invariant: nothing of this is visible, or left, outside.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use clap::ValueEnum;
use tokio::process::Command as Async;

use crate::harness::Result;
use crate::harness::servers::free_addrs;

/// The size of each node's file system.
const DISK_MIB: u64 = 512;
/// The port of each node in its own namespace, and that for clients of Redis.
const PORTS: (u16, u16) = (7001, 7002);
/// The address of no network card: frames to it are lost.
const NOBODY: &str = "02:00:00:00:00:99";

/// Where the nodes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Place {
    /// Each in a network namespace, with a file system of its own
    Own,
    /// All on the loopback interface
    Loopback,
}

/// What the machine allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct World {
    /// Whether nodes have namespaces and file systems of their own.
    pub own: bool,
    /// Whether the kernel can delay packets; otherwise it can only limit the rate.
    pub delays: bool,
}

/// How packets from one node to another are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// They vanish without an error.
    Silent,
    /// The sender's system refuses them at once.
    Refused,
}

impl World {
    /// Enters new namespaces, unless the place is the loopback interface or the machine does not allow it. To do so,
    /// this program is started again, and this function does not return. In the new process `entered` is true.
    pub fn enter(place: Option<Place>, entered: bool) -> Result<Self> {
        let loopback = Self { own: false, delays: false };
        if entered {
            return Self::build();
        }
        if place == Some(Place::Loopback) {
            return Ok(loopback);
        }
        let unshare = || {
            let mut command = Command::new("unshare");
            command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
            command
        };
        let probe = "mount -t tmpfs none /run && ip link add probe type veth peer name probed && nsenter --version";
        let probed = unshare().args(["sh", "-c", probe]).output();
        if probed.is_ok_and(|output| output.status.success()) {
            let mut again = unshare();
            again.arg(std::env::current_exe()?).args(std::env::args_os().skip(1)).arg("--entered");
            return Err(again.exec().into());
        }
        if place.is_some() {
            return Err("this machine gives us no namespaces of networks and mounts".into());
        }
        Ok(loopback)
    }

    /// Creates a switch, and connects this process to it.
    fn build() -> Result<Self> {
        run_now("mount", "-t tmpfs none /run")?;
        run_now("ip", "link set lo up")?;
        run_now("ip", "link add switch type bridge")?;
        run_now("ip", "addr add 10.77.0.254/24 dev switch")?;
        run_now("ip", "link set switch up")?;
        let delays = run_now("tc", "qdisc add dev lo root netem delay 0ms").is_ok();
        if delays {
            run_now("tc", "qdisc del dev lo root")?;
        }
        Ok(Self { own: true, delays })
    }

    /// Returns the addresses on which the nodes will listen, each with that for clients of Redis.
    pub fn addrs(&self, count: usize) -> Result<Vec<(String, String)>> {
        if !self.own {
            let mut addrs = free_addrs(2 * count)?;
            let redis = addrs.split_off(count);
            return Ok(addrs.into_iter().zip(redis).collect());
        }
        let of = |number| (format!("{}:{}", ip(number), PORTS.0), format!("{}:{}", ip(number), PORTS.1));
        Ok((0..count).map(of).collect())
    }

    /// Creates a node's namespace, links it to the switch, and mounts its file system.
    pub async fn give(&self, name: &str, number: usize, disk: &Path) -> Result<()> {
        std::fs::create_dir_all(disk)?;
        if !self.own {
            return Ok(());
        }
        run("ip", &format!("netns add {name}")).await?;
        run("ip", &format!("link add port-{name} type veth peer name wire netns {name}")).await?;
        run("ip", &format!("link set port-{name} master switch up")).await?;
        run("ip", &format!("-n {name} addr add {}/24 dev wire", ip(number))).await?;
        run("ip", &format!("-n {name} link set wire up")).await?;
        run("ip", &format!("-n {name} link set lo up")).await?;
        let size = format!("size={DISK_MIB}m");
        let mount = Async::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(disk).output();
        checked("mount", mount.await?)
    }

    /// Unmounts a node's file system.
    pub async fn take(&self, disk: &Path) -> Result<()> {
        if !self.own {
            return Ok(());
        }
        checked("umount", Async::new("umount").arg("--lazy").arg(disk).output().await?)
    }

    /// Returns the command that runs a program as a node, up to the program's name.
    pub fn command(&self, name: &str, program: &Path) -> Async {
        let mut command = if self.own {
            let mut command = Async::new("nsenter");
            command.arg(format!("--net=/run/netns/{name}"));
            command
        } else {
            // A node that is paused would not notice the end of its standard input.
            let mut command = Async::new("setpriv");
            command.args(["--pdeathsig", "KILL"]);
            command
        };
        command.arg("--").arg(program);
        command
    }

    /// Loses all packets from one node to another.
    pub async fn cut(&self, from: &str, to: usize, cut: Cut) -> Result<()> {
        let to = ip(to);
        match cut {
            Cut::Silent => {
                run("ip", &format!("-n {from} neigh replace {to} lladdr {NOBODY} dev wire nud permanent")).await
            }
            Cut::Refused => run("ip", &format!("-n {from} route replace blackhole {to}/32")).await,
        }
    }

    /// Ends a cut.
    pub async fn join(&self, from: &str, to: usize, cut: Cut) -> Result<()> {
        let to = ip(to);
        match cut {
            Cut::Silent => run("ip", &format!("-n {from} neigh del {to} dev wire")).await,
            Cut::Refused => run("ip", &format!("-n {from} route del blackhole {to}/32")).await,
        }
    }

    /// Disconnects a node from the switch, or connects it again.
    pub async fn plug(&self, name: &str, in_it: bool) -> Result<()> {
        run("ip", &format!("link set port-{name} {}", if in_it { "up" } else { "down" })).await
    }

    /// Delays the packets of a node by about 50 ms, or limits its rate to 400 kbit/s if packets can't be delayed.
    pub async fn slow(&self, name: &str, slow: bool) -> Result<()> {
        let how = match (slow, self.delays) {
            (true, true) => "add dev wire root netem delay 50ms 20ms",
            (true, false) => "add dev wire root tbf rate 400kbit burst 8kb latency 400ms",
            (false, _) => "del dev wire root",
        };
        run("nsenter", &format!("--net=/run/netns/{name} tc qdisc {how}")).await
    }
}

fn ip(number: usize) -> String {
    format!("10.77.0.{}", number + 1)
}

fn run_now(program: &str, args: &str) -> Result<()> {
    checked(&format!("{program} {args}"), Command::new(program).args(args.split(' ')).output()?)
}

async fn run(program: &str, args: &str) -> Result<()> {
    checked(&format!("{program} {args}"), Async::new(program).args(args.split(' ')).output().await?)
}

fn checked(what: &str, output: std::process::Output) -> Result<()> {
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{what}: {}", said.trim()).into()) }
}
