//! A job graph as text: what all processes must have built alike.

use std::fmt::Write;

use tidegate_runtime::JobPlan;

use crate::options::JobOptions;

/// One line per operator and edge, and what else has to be the same. What only the JobManager knows
/// is left out: the max parallelism of operators whose user didn't choose it.
pub(crate) fn describe(plan: &JobPlan, options: &JobOptions) -> String {
    let graph = plan.graph();
    let mut text = format!("mode {:?}\n", options.mode);
    for (operator, types) in graph.operators.iter().zip(plan.types()) {
        let max = match operator.max_parallelism_derived {
            true => "derived".to_owned(),
            false => operator.max_parallelism.get().to_string(),
        };
        let _ = writeln!(
            text,
            "operator {}: {:?}, parallelism {}, max parallelism {max}, {types}",
            operator.uid, operator.role, operator.parallelism
        );
    }
    for edge in &graph.edges {
        let (from, to) = (graph.operator(edge.from), graph.operator(edge.to));
        let _ = writeln!(
            text,
            "edge {} to {}: {:?}",
            from.uid, to.uid, edge.partitioning
        );
    }
    text
}
