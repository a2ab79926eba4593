//! Measures all systems in turns (A, B, C, A, B, C ...), and writes a page of their medians, with targets and plots.
//!
//! Each run is a run of this program with the arguments in [`cases`], so that each line of the page can be measured
//! again separately. The systems are measured in turns because the speed of a disk changes within minutes, so only runs
//! right after each other can be compared.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use quorate_bench_harness::Result;

use crate::peer::build_hiqlite;

mod cases;
pub mod page;
mod plots;
mod runs;
mod svg;
mod targets;

use cases::{CASES, Case, Contender, RQLITE};
use runs::{Run, Runs};

/// The page, in the checkout that this program was built from.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/benchmarks.md");

/// The options of a comparison.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Run fewer cases for a shorter time on smaller data, to check that everything works. Do not use the figures.
    #[arg(long)]
    quick: bool,
    /// How often each case is measured: by default 3 times, with `--quick` once. Use an odd number, which has a median.
    /// Cases that take long are measured once.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: Option<u32>,
    /// Run only cases whose names contain this text.
    #[arg(long)]
    only: Option<String>,
    /// The address of a running rqlited, `http://HOST:PORT`, which leads a cluster of three and is compared, too. Its
    /// tables `bench`, `filler` and `names` are dropped.
    #[arg(long)]
    rqlited: Option<String>,
    /// A directory for the data, on the disk to be measured; by default beside this program. The data are removed at
    /// the end.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The file to write the page to; the plots go to a directory with the same name without the extension. By default,
    /// unless `--quick` or `--only` is given, the page is docs/benchmarks.md of the checkout.
    #[arg(long)]
    write: Option<PathBuf>,
    /// Also print each run as a line of JSON.
    #[arg(long)]
    json: bool,
    /// Measure nothing, and make the page from a file with the output of `--json`.
    #[arg(long)]
    from: Option<PathBuf>,
}

/// Measures everything, prints the page and writes it.
pub fn run(options: &Options) -> Result<()> {
    let runs = match &options.from {
        Some(file) => Runs::read(&std::fs::read_to_string(file)?)?,
        None => options.measure_all()?,
    };
    let path = options.page();
    let plots = path.as_ref().and_then(|path| path.file_stem()).map(|stem| stem.to_string_lossy().into_owned());
    let about = page::About { machine: machine(), commit: commit(), arguments: options.arguments(), plots };
    let text = page::markdown(&about, &runs);
    print!("{text}");
    if let Some(path) = path {
        let dir = path.with_extension("");
        std::fs::create_dir_all(&dir)?;
        for (name, picture) in plots::all(&runs) {
            std::fs::write(dir.join(name).with_extension("svg"), picture)?;
        }
        std::fs::write(path, text)?;
    }
    Ok(())
}

impl Options {
    fn measure_all(&self) -> Result<Runs> {
        let programs = [std::env::current_exe()?, build_hiqlite()?];
        let mut runs = Runs::default();
        for case in CASES.iter().filter(|case| self.takes(case)) {
            let rounds = if case.once { 1 } else { self.rounds.unwrap_or(if self.quick { 1 } else { 3 }) };
            for round in 1..=rounds {
                for contender in case.contenders.iter().filter(|contender| self.has(contender)) {
                    let found = self.measure(&programs, case, contender)?;
                    for line in found.lines().filter(|_| self.json) {
                        println!("{line}");
                    }
                    let figures: Vec<_> = found.all(case.figure).into_iter().map(page::grouped).collect();
                    eprintln!("{} ({round}/{rounds}), {}: {figures:?}", case.name, contender.label);
                    runs.0.extend(found.0);
                }
            }
        }
        Ok(runs)
    }

    fn takes(&self, case: &Case) -> bool {
        (!self.quick || case.quick.is_some()) && self.only.as_ref().is_none_or(|only| case.name.contains(only.as_str()))
    }

    fn has(&self, contender: &Contender) -> bool {
        contender.system != RQLITE.system || self.rqlited.is_some()
    }

    /// Does one run, which gives a report for each number of clients. A run that did not finish is a result, too.
    fn measure(&self, programs: &[PathBuf; 2], case: &Case, contender: &Contender) -> Result<Runs> {
        let [own, hiqlite] = programs;
        let mut command = Command::new(if contender.system == "hiqlite" { hiqlite } else { own });
        command.args(case.arguments).args(["--json", "--system", contender.system]).args(contender.arguments);
        command.args(case.quick.filter(|_| self.quick).unwrap_or(case.earnest));
        if let (Some(rqlited), "rqlite") = (&self.rqlited, contender.system) {
            command.args(["--url", rqlited]);
        }
        if let Some(dir) = &self.dir {
            command.arg("--dir").arg(dir);
        }
        let output = command.stderr(Stdio::inherit()).output()?;
        let text = String::from_utf8(output.stdout)?;
        let run = |line: &str| -> Result<Run> {
            let (case, contender) = (case.name.to_owned(), contender.label.to_owned());
            Ok(Run { case, contender, report: serde_json::from_str(line)? })
        };
        match text.is_empty() {
            true => Err(format!("{command:?} printed nothing: {}", output.status).into()),
            false => text.lines().map(run).collect::<Result<_>>().map(Runs),
        }
    }

    fn page(&self) -> Option<PathBuf> {
        let whole = !self.quick && self.only.is_none();
        self.write.clone().or_else(|| whole.then(|| Path::new(PAGE).to_owned()))
    }

    /// Returns the arguments that a reader needs to repeat the comparison.
    fn arguments(&self) -> String {
        let quick = self.quick.then(|| " --quick".to_owned());
        let rounds = self.rounds.map(|rounds| format!(" --rounds {rounds}"));
        let only = self.only.as_ref().map(|only| format!(" --only {only:?}"));
        let rqlited = self.rqlited.as_ref().map(|rqlited| format!(" --rqlited {rqlited}"));
        [quick, rounds, only, rqlited].into_iter().flatten().collect()
    }
}

/// Describes the machine: processors and operating system.
pub fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let model = model.trim_start_matches([' ', '\t', ':']);
    let count = std::thread::available_parallelism().map_or(0, usize::from);
    let release = read("/proc/sys/kernel/osrelease");
    format!("{count} processors ({model}), Linux {}", release.trim().split('-').next().unwrap_or_default())
}

/// Returns the measured commit, as git describes it.
pub fn commit() -> String {
    let mut git = Command::new("git");
    git.args(["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty"]);
    let described = git.output().ok().filter(|output| output.status.success());
    let described = described.and_then(|output| String::from_utf8(output.stdout).ok());
    described.map_or_else(|| "an unknown commit".to_owned(), |text| text.trim().to_owned())
}
