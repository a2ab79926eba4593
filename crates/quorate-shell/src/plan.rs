//! A query plan as a tree.

use std::collections::BTreeMap;

use quorate::Value;

use crate::format::visible;

/// The columns of EXPLAIN QUERY PLAN.
const COLUMNS: [&str; 4] = ["id", "parent", "notused", "detail"];

/// The steps of a plan, by their parents.
#[derive(Debug, Default)]
pub struct Plan {
    steps: BTreeMap<i64, Vec<(i64, String)>>,
}

impl Plan {
    /// An empty plan, if these are the columns of one.
    pub fn of_columns(columns: &[String]) -> Option<Self> {
        columns.iter().eq(COLUMNS).then(Self::default)
    }

    /// Adds a row of EXPLAIN QUERY PLAN.
    pub fn add(&mut self, row: &[Value]) {
        if let [Value::Integer(id), Value::Integer(parent), _, Value::Text(detail)] = row {
            self.steps.entry(*parent).or_default().push((*id, detail.clone()));
        }
    }

    /// The tree.
    pub fn text(&self) -> String {
        let mut text = "QUERY PLAN\n".to_owned();
        // The steps that are still to be printed, the next one last, each with the prefix of its children's lines.
        let mut open: Vec<(i64, String)> = Vec::new();
        let children = |id: i64, before: &str, open: &mut Vec<(i64, String)>, text: &mut Vec<String>| {
            let steps = self.steps.get(&id).map(Vec::as_slice).unwrap_or_default();
            for (number, (id, detail)) in steps.iter().enumerate().rev() {
                let is_last = number.saturating_add(1) == steps.len();
                let (branch, below) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
                text.push(format!("{before}{branch}{}\n", visible::one_line(detail)));
                open.push((*id, format!("{before}{below}")));
            }
        };
        let mut lines = Vec::new();
        children(0, "", &mut open, &mut lines);
        while let (Some((id, before)), Some(line)) = (open.pop(), lines.pop()) {
            text.push_str(&line);
            // Bounds the text in case the node sends a step that is its own ancestor.
            if id > 0 && text.len() < 1 << 20 {
                children(id, &before, &mut open, &mut lines);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_printed_below_their_parents() {
        let mut plan = Plan::default();
        for (id, parent, detail) in [(2, 0, "CO-ROUTINE a"), (5, 2, "SCAN t"), (9, 2, "USE TEMP"), (12, 0, "SCAN a")] {
            plan.add(&[Value::Integer(id), Value::Integer(parent), Value::Integer(0), detail.into()]);
        }
        let expected = "QUERY PLAN\n├─ CO-ROUTINE a\n│  ├─ SCAN t\n│  └─ USE TEMP\n└─ SCAN a\n";
        assert_eq!(plan.text(), expected);
        assert_eq!(Plan::default().text(), "QUERY PLAN\n");
        assert!(Plan::of_columns(&COLUMNS.map(str::to_owned)).is_some() && Plan::of_columns(&[]).is_none());
    }

    #[test]
    fn a_step_that_is_its_own_ancestor_ends() {
        let mut plan = Plan::default();
        for (id, parent) in [(1, 0), (2, 1), (1, 2)] {
            plan.add(&[Value::Integer(id), Value::Integer(parent), Value::Integer(0), "x".into()]);
        }
        assert!(plan.text().len() < 4 << 20);
    }
}
