"""The server side of the app: runs, their queue, loaded models, saved runs.

It does not depend on Streamlit.
"""
