"""The server's side of the app: runs, their queue, loaded models, saved runs.

Knows nothing of Streamlit.
"""
