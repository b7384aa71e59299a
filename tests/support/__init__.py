"""Shared test support: real servers, wire-level clients, observation checkers and builders."""
