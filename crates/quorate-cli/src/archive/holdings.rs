//! `quorate archive status` and `prune`: what archives hold, and what they hold no longer.

use quorate::archive::{self, Manifest, Pruned};
use quorate::types::ClusterId;
use quorate_env::Env;
use quorate_shell::format::size;
use serde_json::json;

use super::{Archived, ListArgs, PruneArgs, time};
use crate::error::{Error, Result};
use crate::output;

/// The nanoseconds of a millisecond.
const NANOS: u64 = 1_000_000;

/// What the archive of one cluster holds.
struct Holdings {
    archived: Archived,
    objects: usize,
    bytes: u64,
}

/// Shows what each archive at a place holds.
pub async fn status(args: &ListArgs) -> Result<()> {
    let objects = args.store.open(&args.url)?;
    let mut all = Vec::new();
    for archived in Archived::find_all(&objects).await? {
        let listed = objects.list(&format!("{}/", archived.manifest.cluster)).await.map_err(Error::of)?;
        let bytes = listed.iter().map(|object| object.length).fold(0, u64::saturating_add);
        all.push(Holdings { archived, objects: listed.len(), bytes });
    }
    if args.json {
        let all: Vec<_> = all.iter().map(Holdings::as_json).collect();
        return output::print(&format!("{:#}\n", json!(all)));
    }
    if all.is_empty() {
        return output::print(&format!("{} holds no archives\n", args.url));
    }
    output::print(&all.iter().map(Holdings::as_text).collect::<String>())
}

impl Holdings {
    fn as_text(&self) -> String {
        let Self { archived, objects, bytes } = self;
        let Manifest { node, token, generations, .. } = &archived.manifest;
        let mut text = archived.as_text();
        text.push_str(&format!("  {objects} objects, {}\n", size(*bytes)));
        text.push_str(&format!("  archiver: node {node:016x}, token {token}\n"));
        if let Some(file) = archived.boundary() {
            text.push_str(&format!("  last boundary: entry {} at {}\n", file.index, time(file.time)));
        }
        for generation in generations {
            let Some(begin) = generation.begin() else { continue };
            let (number, epoch, files) = (generation.number, generation.epoch, generation.files.len());
            text.push_str(&format!(
                "  generation {number}: from {epoch}.1.{} ({}), {files} files\n",
                begin.index,
                time(begin.time)
            ));
        }
        text
    }

    fn as_json(&self) -> serde_json::Value {
        let Self { archived, objects, bytes } = self;
        let generations = archived.manifest.generations.iter().map(|generation| {
            let begin = generation.begin();
            json!({
                "number": generation.number, "epoch": generation.epoch, "files": generation.files.len(),
                "first": begin.map(|begin| json!({"index": begin.index, "time": time(begin.time)})),
            })
        });
        let generations: Vec<_> = generations.collect();
        let boundary = archived.boundary();
        let boundary = boundary.map(|file| json!({"index": file.index, "time": time(file.time)}));
        let mut holdings = archived.as_json();
        if let Some(fields) = holdings.as_object_mut() {
            fields.insert("objects".to_owned(), json!(objects));
            fields.insert("bytes".to_owned(), json!(bytes));
            fields.insert("boundary".to_owned(), json!(boundary));
            fields.insert("generations".to_owned(), json!(generations));
        }
        holdings
    }
}

/// Gives up old states.
pub async fn prune(args: &PruneArgs) -> Result<()> {
    let objects = args.store.open_to_change(&args.url, &args.recipient)?;
    let named = args.cluster.as_deref().map(crate::restore::cluster).transpose()?;
    let cluster = archive::only_cluster(&*objects, named.map(|named| named.0)).await.map_err(Error::of)?;
    let env = Env::real();
    let now = i64::try_from(env.unix_nanos() / NANOS).unwrap_or(i64::MAX);
    let pruned = archive::prune(&env, &objects, cluster, (now, args.keep_for), args.dry_run).await;
    let pruned = pruned.map_err(Error::of)?;
    output::print(&match args.json {
        true => pruned_json(ClusterId(cluster), &pruned, args.dry_run),
        false => pruned_text(ClusterId(cluster), &pruned, args.dry_run),
    })
}

fn pruned_text(cluster: ClusterId, pruned: &Pruned, is_dry: bool) -> String {
    let begin = pruned.manifest.generations.iter().find_map(|generation| Some((generation.epoch, generation.begin()?)));
    let Some((epoch, begin)) = begin else { return format!("{cluster}  no whole database yet\n") };
    let what = if is_dry { "would be deleted" } else { "deleted" };
    let (count, bytes) = (pruned.objects.len(), size(pruned.bytes()));
    let mut text = String::new();
    if is_dry {
        pruned.objects.iter().for_each(|object| text.push_str(&format!("{}  {}\n", object.key, size(object.length))));
    }
    text.push_str(&format!(
        "{cluster}  {count} objects {what}, {bytes}; states stay from {epoch}.1.{} ({}) on\n",
        begin.index,
        time(begin.time)
    ));
    text
}

fn pruned_json(cluster: ClusterId, pruned: &Pruned, is_dry: bool) -> String {
    let begin = pruned.manifest.generations.iter().find_map(|generation| Some((generation.epoch, generation.begin()?)));
    let first =
        begin.map(|(epoch, begin)| json!({"position": format!("{epoch}.1.{}", begin.index), "time": time(begin.time)}));
    let keys: Vec<_> = pruned.objects.iter().map(|object| &object.key).collect();
    let pruned = json!({
        "cluster": cluster.to_string(), "dry_run": is_dry, "objects": keys, "bytes": pruned.bytes(), "first": first,
    });
    format!("{pruned:#}\n")
}
