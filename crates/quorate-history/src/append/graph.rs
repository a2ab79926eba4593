//! The dependency graph of transactions, and the cycles in it.
//!
//! Almost every pair of transactions would need an edge for "was acknowledged before the other began". To avoid that,
//! the acknowledgments are nodes too, chained in order of time. Each transaction has an edge to its own acknowledgment,
//! and an edge from the last acknowledgment before it began. Invariant: `rt` edges alone form no cycle.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;

use super::{Anomaly, Kind, Transaction};
use crate::Op;

/// The maximum number of anomalies reported; a broken database could produce far more.
const REPORTED_MAX: usize = 10;

/// The maximum number of edges per component from which a cycle is searched for.
const TRIED_MAX: usize = 1000;

/// The reason why one transaction must come before the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The second appended after the first.
    Ww,
    /// The second read the first one's value.
    Wr,
    /// The first did not see the second one's value.
    Rw,
    /// The first was acknowledged before the second began.
    Rt,
}

/// A set of edge kinds.
type Kinds = &'static [Edge];

/// The kinds of cycles by the edges that they consist of, the worst first. The optional kind is for cycles with a
/// single `rw` edge.
const CYCLE_KINDS: [(Kinds, Option<Kind>, Kind); 6] = [
    (&[Edge::Ww], None, Kind::G0),
    (&[Edge::Ww, Edge::Wr], None, Kind::G1c),
    (&[Edge::Ww, Edge::Wr, Edge::Rw], Some(Kind::GSingle), Kind::G2),
    (&[Edge::Ww, Edge::Rt], None, Kind::G0RealTime),
    (&[Edge::Ww, Edge::Wr, Edge::Rt], None, Kind::G1cRealTime),
    (&[Edge::Ww, Edge::Wr, Edge::Rw, Edge::Rt], Some(Kind::GSingleRealTime), Kind::G2RealTime),
];

/// The dependency graph; see the module's documentation.
pub struct Graph<'a> {
    history: &'a [Op<Transaction>],
    happened: Vec<bool>,
    /// The edges from each node. Nodes are the transactions by number, then the acknowledgments by time.
    edges: Vec<Vec<(usize, Edge)>>,
}

impl<'a> Graph<'a> {
    /// The graph of the transactions that happened, with `rt` edges only.
    pub fn new(history: &'a [Op<Transaction>], happened: Vec<bool>) -> Self {
        let count = history.len();
        let mut acknowledged: Vec<usize> = (0..count).filter(|number| history[*number].is_done()).collect();
        acknowledged.sort_unstable_by_key(|number| history[*number].ended);
        let mut graph = Self { history, happened, edges: vec![Vec::new(); count + acknowledged.len()] };
        for (at, number) in acknowledged.iter().enumerate() {
            graph.add(*number, count + at, Edge::Rt);
            if at > 0 {
                graph.add(count + at - 1, count + at, Edge::Rt);
            }
        }
        for number in 0..count {
            let before = acknowledged.partition_point(|other| history[*other].ended < history[number].begun);
            if before > 0 && graph.happened[number] {
                graph.add(count + before - 1, number, Edge::Rt);
            }
        }
        graph
    }

    /// Whether a transaction certainly happened.
    pub fn happened(&self, number: usize) -> bool {
        self.happened[number]
    }

    /// Adds an edge, unless both ends are the same node.
    pub fn add(&mut self, from: usize, to: usize, edge: Edge) {
        if from != to {
            self.edges[from].push((to, edge));
        }
    }

    /// Cycles of the worst kind that occurs.
    pub fn anomalies(&self) -> Vec<Anomaly> {
        let found = CYCLE_KINDS.iter().map(|(kinds, one_rw, kind)| self.cycles(kinds, *one_rw, *kind));
        found.into_iter().find(|found| !found.is_empty()).unwrap_or_default()
    }

    fn cycles(&self, kinds: Kinds, one_rw: Option<Kind>, kind: Kind) -> Vec<Anomaly> {
        let component = self.components(kinds);
        let inside = |from: usize| {
            let edges = self.edges[from].iter().map(move |(to, edge)| (from, *to, *edge));
            edges.filter(|(from, to, edge)| component[*from] == component[*to] && kinds.contains(edge))
        };
        let mut tried: HashMap<usize, usize> = HashMap::new();
        let mut found: HashMap<usize, (Kind, Vec<(usize, Edge)>)> = HashMap::new();
        let without: Vec<Edge> = kinds.iter().copied().filter(|edge| *edge != Edge::Rw).collect();
        for (from, to, edge) in (0..self.edges.len()).flat_map(inside) {
            // If `rw` edges count, a cycle must contain one; otherwise it must contain an edge other than `rt`.
            let may_close = if one_rw.is_some() { edge == Edge::Rw } else { edge != Edge::Rt };
            let tries = tried.entry(component[from]).or_default();
            let is_known = found.get(&component[from]).is_some_and(|(known, _)| Some(*known) == one_rw.or(Some(kind)));
            if !may_close || is_known || *tries >= TRIED_MAX || found.len() >= REPORTED_MAX {
                continue;
            }
            *tries += 1;
            let closed = |path: Vec<(usize, Edge)>| [vec![(from, edge)], path].concat();
            if let Some((kind, path)) = one_rw.and_then(|kind| Some((kind, self.shortest_path(to, from, &without)?))) {
                found.insert(component[from], (kind, closed(path)));
            } else if let Some(path) = self.shortest_path(to, from, kinds) {
                found.entry(component[from]).or_insert((kind, closed(path)));
            }
        }
        found.into_values().map(|(kind, cycle)| Anomaly { kind, text: self.describe(&cycle) }).collect()
    }

    /// The shortest path between two nodes: each node with its outgoing edge.
    fn shortest_path(&self, from: usize, to: usize, kinds: &[Edge]) -> Option<Vec<(usize, Edge)>> {
        let mut came_from: HashMap<usize, (usize, Edge)> = HashMap::new();
        let mut queue = VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            if at == to {
                let mut path: Vec<(usize, Edge)> = Vec::new();
                let mut at = to;
                while at != from {
                    let (before, edge) = came_from[&at];
                    path.push((before, edge));
                    at = before;
                }
                path.reverse();
                return Some(path);
            }
            for (next, edge) in &self.edges[at] {
                if kinds.contains(edge) && *next != from && !came_from.contains_key(next) {
                    came_from.insert(*next, (at, *edge));
                    queue.push_back(*next);
                }
            }
        }
        None
    }

    /// The strongly connected component of each node, by Tarjan's algorithm without recursion.
    fn components(&self, kinds: Kinds) -> Vec<usize> {
        const NEW: usize = usize::MAX;
        let count = self.edges.len();
        let (mut order, mut low, mut component) = (vec![NEW; count], vec![NEW; count], vec![NEW; count]);
        let (mut stack, mut calls) = (Vec::new(), Vec::new());
        let mut time = 0;
        for root in 0..count {
            if order[root] == NEW {
                calls.push((root, 0));
            }
            while let Some((at, next)) = calls.pop() {
                if next == 0 {
                    (order[at], low[at]) = (time, time);
                    time += 1;
                    stack.push(at);
                }
                let mut edges = self.edges[at].iter().enumerate().skip(next);
                let deeper = edges.find_map(|(number, (to, edge))| {
                    if !kinds.contains(edge) || component[*to] != NEW {
                        return None;
                    }
                    low[at] = low[at].min(order[*to]);
                    (order[*to] == NEW).then_some((number + 1, *to))
                });
                if let Some((number, to)) = deeper {
                    calls.extend([(at, number), (to, 0)]);
                    continue;
                }
                if low[at] == order[at] {
                    while component[at] == NEW {
                        let Some(member) = stack.pop() else { break };
                        component[member] = at;
                    }
                }
                if let Some((caller, _)) = calls.last() {
                    low[*caller] = low[*caller].min(low[at]);
                }
            }
        }
        component
    }

    fn describe(&self, cycle: &[(usize, Edge)]) -> String {
        let mut text = String::new();
        for (node, edge) in cycle {
            // Writing to a string can't fail.
            let _ = match self.history.get(*node) {
                Some(op) => write!(text, "{:?} ({} to {} ns) -{edge:?}-> ", op.what, op.begun, op.ended),
                None => Ok(()),
            };
        }
        text + "the first transaction"
    }
}
