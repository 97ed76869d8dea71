//! Tiers and budgets: the memory tier
